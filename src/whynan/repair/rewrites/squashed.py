"""The slope of tanh, whose logarithm corrects the density of a squashed sample."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, call_of, fn, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.noise import without_eps
from whynan.repair.rewrites.roots import squared
from whynan.repair.source import Expression, Source

TITLE = "compute it from the value before `tanh`, where nothing is rounded to 1"


def propose(case: Case) -> Iterator[Candidate]:
    """log(1 - tanh(x)^2) is 2 * (log 2 - x - softplus(-2 x))."""
    source = case.source
    log = fn(source, case.node) if source is not None else None
    if source is None or log is None or log.name not in ("log", "log1p") or log.inplace:
        return
    square = _taken_off(source, log)
    inner = squared(source, square) if square is not None else None
    tanh = call_of(source, inner, "tanh") if inner is not None else None
    if tanh is None or tanh.inplace:
        return
    if not source.means_the_same(tanh.operand, tanh.node, log.node):
        return
    x = source.receiver(tanh.operand)
    text = f"2 * (math.log(2) - {x} - {source.functional()}.softplus(-2 * {x}))"
    yield from case.change(Edit(source).replace(log.node, text), "log_slope", TITLE, Tier.EXACT)


def _taken_off(source: Source, log: Fn) -> Expression | None:
    """`s` of `log(1 - s)`, `log(1 - s + eps)` or `log1p(-s)`."""
    operand = source.definition(log.operand) or log.operand
    if log.name == "log1p":
        negative = isinstance(operand, cst.UnaryOperation) and isinstance(
            operand.operator, cst.Minus
        )
        return operand.expression if negative and isinstance(operand, cst.UnaryOperation) else None
    return one_minus(without_eps(operand))
