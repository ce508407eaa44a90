"""The correction 1 - beta ** t of a running average: its steps are counted from 1."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.project import Project
from whynan.repair.source import Expression, Source

USUAL = "0.999"
TITLE = "count the steps from 1: before the first one, 1 - beta ** 0 is 0"


def propose(case: Case) -> Iterator[Candidate]:
    source, quotient = case.source, binary(case.node, cst.Divide)
    if source is None or quotient is None or case.mechanism != "division_by_zero":
        return
    yield from _moved(case)
    count = counted(source, quotient.right)
    if count is None or not _counts_later(source, quotient, count):
        return
    scope, edit = source.scope(quotient), Edit(source)
    for power in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        taken_off = one_minus(source.parent(power)) is power
        if taken_off and isinstance(power.operator, cst.Power) and source.same(power.right, count):
            edit.replace(power.right, f"({source.code(count)} + 1)")
    yield from case.change(edit, "count_from_1", TITLE, Tier.EXACT)


def _moved(case: Case) -> Iterator[Candidate]:
    """`1 - beta ** t` with a beta of 1: an average that never moves."""
    constants = Constants(Project(case))
    home = constants.project.source(case.site.file) if case.site is not None else None
    if home is None or case.site is None:
        return
    quotient = binary(home.expression_at(case.site), cst.Divide)
    divisor = quotient.right if quotient is not None else None
    for seen in (divisor, home.definition(divisor) if divisor is not None else None):
        power = binary(one_minus(seen), cst.Power)
        beta = constants.of(home, power.left) if power is not None else None
        if beta is not None and isinstance(beta.node, Expression) and number_of(beta.node) == 1:
            edit = Edit(beta.source).replace(beta.node, USUAL)
            title = f"let this average move, by {USUAL}: with a share of 1 it stays at 0"
            yield from case.change(edit, "average_moves", title, Tier.GUARD)


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
