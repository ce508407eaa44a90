"""Whose values an expression works on: torch's, NumPy's, or those of another array library.

A fix is written in the words of the library that the values belong to, and a claim about torch is
not made about JAX. What is not certain is said to be nobody's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whynan.lint.libraries import OTHER, TABLES, family
from whynan.lint.names import Names
from whynan.lint.terms import Term, walk_through

if TYPE_CHECKING:
    from whynan.lint.flow import Walker


class Evidence:
    """Which libraries a file and the parts of it speak of; looked up when a pattern was met."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.called: frozenset[str] | None = None  # by what is trained, once that was asked
        self._parts: dict[ast.AST, frozenset[str]] = {}
        self.file = frozenset(
            family(full) for meanings in names.imported.values() for full in meanings
        ) - {""}

    def within(self, part: ast.AST) -> frozenset[str]:
        """The libraries whose names are read in one function or class."""
        if part not in self._parts:
            read = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
            self._parts[part] = frozenset(
                family(full) for name in read for full in self._names.imported.get(name, ())
            ) - {""}
        return self._parts[part]


def library_of(term: Term, here: Walker) -> str:
    """torch, numpy, math, other, or '' when that cannot be told."""
    if term.kind == OTHER:
        return OTHER
    if term.lib and term.form in ("call", "module"):
        return term.lib
    if term.kind == "array":
        return "numpy"
    called = {t.lib for t in walk_through(term) if t.lib and t.form in ("call", "module")}
    if term.kind == "scalar":
        return called.pop() if len(called) == 1 else ""
    if "torch" in called:
        return "torch"
    near = here.evidence.within(here.part) if here.part is not None else here.evidence.file
    if term.kind == "tensor":
        # Arrays of NumPy have no such methods; other libraries' tensors do.
        if not near & {"torch", OTHER}:
            near = here.evidence.file
        near -= {"numpy", TABLES}
    elif not near & {"torch", "numpy", OTHER, TABLES}:
        # Nothing near says what a bare variable is; that torch is nowhere in the file does.
        return OTHER if OTHER in here.evidence.file and "torch" not in here.evidence.file else ""
    if OTHER in near:
        return "" if "torch" in near else OTHER
    return "torch" if "torch" in near and not near & {"numpy", TABLES} else ""


def is_torch(term: Term, here: Walker) -> bool:
    """A tensor, as far as its own spelling or everything around it says."""
    if term.kind != "?":
        return term.kind == "tensor"
    return library_of(term, here) == "torch" or here.evidence.file == {"torch"}
