"""The one table of rules: what each catches, and the function that proves it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from whynan.model import Evidence, Finding, OpRecord
from whynan.ops.table import failing
from whynan.rulebook import Page, import_all

Check = Callable[[OpRecord, Evidence], Finding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Page):
    """One failure family."""

    mechanism: str
    kinds: frozenset[str]
    ops: frozenset[str]  # empty: any operation
    check: Check
    everywhere: bool = False  # asked about operations that are not torch's, too


_rules: dict[str, Rule] = {}


def rule(
    code: str,
    slug: str,
    mechanism: str,
    *,
    ops: Collection[str] | None = None,
    kinds: tuple[str, ...] = ("operation",),
    everywhere: bool = False,
) -> Callable[[Check], Check]:
    """Enter a check into the table; rules are tried in the order of their codes.

    Unless `ops` says otherwise, it is asked about the operations that can fail so, or about any.
    """

    def enter(check: Check) -> Check:
        taken = [r for r in _rules.values() if slug == r.slug or code == r.code]
        if taken:
            raise ValueError(f"{code} {slug} clashes with {taken[0].code} {taken[0].slug}")
        _rules[code] = Rule(
            code=code,
            slug=slug,
            mechanism=mechanism,
            kinds=frozenset(kinds),
            ops=failing(mechanism) if ops is None else frozenset(ops),
            check=check,
            everywhere=everywhere,
            module=check.__module__,
        )
        return check

    return enter


def rules() -> list[Rule]:
    """Every rule, by code."""
    import_all("whynan.diagnosis.rules")
    return [_rules[code] for code in sorted(_rules)]
