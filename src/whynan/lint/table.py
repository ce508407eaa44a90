"""The table of source patterns, found in `lint/rules/`, not listed.

A pattern's code is that of the run-time rule whose mechanism it leads to, so that `whynan run` and
`whynan lint` speak of one thing by one code; its slug is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from whynan.lint.finding import Match, Severity
from whynan.lint.flow import Walker
from whynan.lint.terms import Term
from whynan.rulebook import Page, import_all

__all__ = [
    "Match",
    "Pattern",
    "Term",
    "Walker",
    "pattern",
    "patterns",
]  # all that a rule is made of

Check = Callable[[Term, Walker], Match | None]
FixClass = Literal["sometimes", "never"]
FIX_WORDS = {
    "sometimes": "applied by --fix where it is safe",
    "never": "suggested only, because it changes results",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(Page):
    """One unstable way to write something."""

    severity: Severity
    ops: frozenset[str]
    fix: FixClass
    default: bool  # looked for unless deselected
    rank: int  # where two patterns match one expression, the lower speaks
    operands: int | None  # it is asked about terms with so many alone
    check: Check

    @property
    def heading(self) -> str:
        shown = "" if self.default else ", off unless selected"
        return f"{self.code} {self.slug} (lint, {self.severity}{shown}; fix: {FIX_WORDS[self.fix]})"


_patterns: dict[str, Pattern] = {}


def pattern(
    code: str,
    slug: str,
    severity: Severity,
    *,
    ops: tuple[str, ...],
    fix: FixClass = "never",
    default: bool = True,
    rank: int,
    operands: int | None = None,
) -> Callable[[Check], Check]:
    """Enter a check into the table, to be asked about terms of these operations."""

    def enter(check: Check) -> Check:
        if slug in _patterns:
            raise ValueError(f"{slug} is already in {_patterns[slug].module}")
        _patterns[slug] = Pattern(
            code=code,
            slug=slug,
            severity=severity,
            ops=frozenset(ops),
            fix=fix,
            default=default,
            rank=rank,
            operands=operands,
            check=check,
            module=check.__module__,
        )
        return check

    return enter


def patterns() -> list[Pattern]:
    """Every pattern, by code and slug."""
    import_all("whynan.lint.rules")
    return sorted(_patterns.values(), key=lambda p: (p.code, p.slug))
