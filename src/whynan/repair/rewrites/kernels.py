"""1 / (K @ v) with K = exp(-cost / reg), Sinkhorn's iteration: a floor under the sums is no answer."""

from __future__ import annotations

from whynan.model import OpRecord
from whynan.repair.case import Case

TINY = 1e-30
SUMS = {"mv", "mm", "matmul", "bmm"}
MECHANISMS = ("division_by_zero", "overflow", "zero_times_inf", "inf_over_inf")


def underflowed_kernel(case: Case) -> OpRecord | None:
    """The exponential whose sums are divided by, where it has rounded to 0."""
    if case.mechanism not in MECHANISMS:
        return None
    makers = [op for operand in case.origin.inputs for op in operand.upstream]
    names = {case.origin.name, *(op.name for op in makers)}
    if not SUMS & names or not {"reciprocal", "div"} & names:
        return None
    return next((op for op in makers if op.name == "exp" and abs(op.value or 0) < TINY), None)
