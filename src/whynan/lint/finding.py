"""What a rule matched, and what the reader is told of it."""

from __future__ import annotations

import ast
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from whynan.lint.terms import Term

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace one expression's text by another in the words of one library."""

    node: ast.expr
    text: str
    library: str
    needs: str = ""  # an import to be added
    above: int = 0  # the line of the import before which it goes


@dataclass(frozen=True, slots=True)
class Match:
    """A rule's claim about one expression."""

    term: Term
    message: str
    help: str
    _: KW_ONLY
    elsewhere: str = ""  # the help where the values are not torch's; '' if the claim is about torch
    edit: Edit | None = None
    severity: Severity | None = None  # else the rule's own
    of_slope: bool = False  # it harms gradients alone, whatever the rule's code says
    weak: bool = False  # right shape, no evidence: shown only when the rule is asked for by name
    fault: str = ""  # matches with the same are one fault, which is told once
    covers: tuple[Term, ...] = ()  # expressions about which nothing else need be said


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A change of text: from one position up to another (line from 1, column from 0)."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    needs: str = ""  # an import to be added
    above: int = 0  # before this line


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem in one file; plain values, so that it can cross processes."""

    path: str
    line: int  # from 1
    column: int  # from 0
    end_line: int
    end_column: int
    code: str
    slug: str
    severity: Severity
    message: str
    help: str
    source: str  # the line, as typed
    replacement: Replacement | None = None
    cell: int | None = None  # of a notebook, from 1

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        return (self.path, self.cell or 0, self.line, self.column, self.slug)

    def moved(self, *, path: str, line: int, end_line: int, cell: int | None) -> Finding:
        return replace(self, path=path, line=line, end_line=end_line, cell=cell)
