"""A spread of NumPy or pandas that is 0 or missing: a column that never changes, a group of one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost
from whynan.repair.project import Project
from whynan.repair.rewrites.arrays import is_array
from whynan.repair.source import Expression, Source

SPREADS = ("std", "ptp")
GROUP = "divide a group of one, or of equal values, by 1: it has no spread"
COLUMN = "divide what never changes by 1: its spread is 0"


def propose(case: Case) -> Iterator[Candidate]:
    """NaN came in with the data: whatever divides by such a spread on the way there."""
    divided = case.mechanism in ("division_by_zero", "opaque") and is_array(case)
    if not divided and (case.mechanism != "nonfinite_data" or case.origin.phase != "data"):
        return
    constants = Constants(Project(case))
    try:
        sources = list(constants.project.everything())
    except Lost:
        return
    for source in sources:
        pandas, numpy = source.imported("pandas"), source.imported("numpy")
        grouped = pandas is not None and "groupby(" in source.text
        edit, found = Edit(source), 0
        for quotient in source.every(cst.BinaryOperation):
            if binary(quotient, cst.Divide) is None or not is_spread(constants, source, quotient.right):  # fmt: skip
                continue
            if divided and not _is_there(case, source, quotient):
                continue
            divisor = source.receiver(quotient.right)
            if grouped and _of_one_group(source, quotient):
                edit.replace(quotient.right, f"({divisor} if {divisor} > 0 else 1)")
            elif grouped:
                edit.replace(quotient.right, f"{divisor}.fillna(0).replace(0, 1)")
            elif numpy is not None:
                bare = source.code(quotient.right.with_changes(lpar=(), rpar=()))
                edit.replace(quotient.right, f"{numpy}.where({divisor} > 0, {bare}, 1)")
            else:
                continue
            found += 1
        if found and not edit.is_nested():
            title = GROUP if grouped else COLUMN
            yield from case.change(edit, "unit_spread", title, Tier.GUARD)


def _is_there(case: Case, source: Source, quotient: cst.BinaryOperation) -> bool:
    """Whether it is the division that failed: another one, later on, has only what that made of it."""
    site, line = case.site, source.statement(quotient)
    if site is None or source.path != os.path.realpath(site.file):
        return False
    first, last = source.span(line or quotient)
    return first[0] <= site.line <= last[0]


def _of_one_group(source: Source, quotient: cst.BinaryOperation) -> bool:
    """In what `transform` or `apply` calls for each group: there a spread is one number."""
    scope = source.scope(quotient)
    name = scope.name.value if isinstance(scope, cst.FunctionDef) else ""
    handed = (f"transform({name})", f"apply({name})")
    return isinstance(scope, cst.Lambda) or any(h in source.text for h in handed if name)


def is_spread(constants: Constants, source: Source, node: Expression, depth: int = 3) -> bool:
    """`x.std(axis=0)`, `groups.transform("std")`, `stats["std"]`, `high - low`, or a name of one."""
    if isinstance(node, cst.Subscript):
        return source.code(node.slice[0]).strip("'\"") in SPREADS if node.slice else False
    if isinstance(node, cst.Call):
        name = source.code(node.func).split(".")[-1]
        asked = source.code(node.args[0]).strip("'\"") if node.args else ""
        return name in SPREADS or (name in ("transform", "agg") and asked in SPREADS)
    difference = binary(node, cst.Subtract)
    if difference is not None:
        high, low = (_ends(constants, source, part) for part in (difference.left, difference.right))
        return (high, low) == ("max", "min")
    behind = constants.value(source, node) if depth else None
    value = behind.node if behind is not None else None
    if behind is None or not isinstance(value, Expression):
        return False
    return is_spread(constants, behind.source, value, depth - 1)


def _ends(constants: Constants, source: Source, node: Expression) -> str:
    """`max` of `x.max(axis=0)` or `np.max(x, 0)`, or of a name of that."""
    if not isinstance(node, cst.Call):
        behind = constants.value(source, node)
        node, source = (behind.node, behind.source) if behind is not None else (node, source)  # type: ignore[assignment]  # an expression
    return source.code(node.func).split(".")[-1] if isinstance(node, cst.Call) else ""
