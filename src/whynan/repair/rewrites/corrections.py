"""The correction 1 - beta ** t of a running average: its steps are counted from 1."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

TITLE = "count the steps from 1: before the first one, 1 - beta ** 0 is 0"


def propose(case: Case) -> Iterator[Candidate]:
    source, quotient = case.source, binary(case.node, cst.Divide)
    if source is None or quotient is None or case.mechanism != "division_by_zero":
        return
    count = counted(source, quotient.right)
    if count is None or not _counts_later(source, quotient, count):
        return
    scope, edit = source.scope(quotient), Edit(source)
    for power in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        taken_off = one_minus(source.parent(power)) is power
        if taken_off and isinstance(power.operator, cst.Power) and source.same(power.right, count):
            edit.replace(power.right, f"({source.code(count)} + 1)")
    yield from case.change(edit, "count_from_1", TITLE, Tier.EXACT)


def counted(source: Source, divisor: Expression) -> Expression | None:
    """t of `1 - beta ** t`."""
    for seen in (divisor, source.definition(divisor)):
        rest = one_minus(seen)
        power = binary(rest, cst.Power)
        if power is not None and number_of(power.right) is None:
            return power.right
    return None


def _counts_later(source: Source, quotient: cst.BinaryOperation, count: Expression) -> bool:
    """`self.t += 1` comes after the division, in the same function."""
    scope = source.scope(quotient)
    for step in source.every(cst.AugAssign, None if scope is source.module else scope):
        if source.same(step.target, count) and isinstance(step.operator, cst.AddAssign):
            return number_of(step.value) == 1 and source.start(step) > source.start(quotient)
    return False
