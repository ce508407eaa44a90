"""What an expert says where no change of a line mends it: the reason, with the numbers."""

from __future__ import annotations

from whynan.model import number
from whynan.ops.table import that
from whynan.repair.case import Case
from whynan.repair.rewrites.kernels import underflowed_kernel
from whynan.repair.rewrites.masks import MASKED, draws

PRODUCTS = that("multiplies")
LONG = 3  # factors


def said(case: Case) -> str | None:
    """One or two sentences, or None."""
    for attempt in (_nothing_to_draw, _underflowing_product, _underflowed_kernel, _odd_data):
        text = attempt(case)
        if text is not None:
            return text
    return None


def _nothing_to_draw(case: Case) -> str | None:
    source, node = case.source, case.node
    if case.mechanism not in MASKED or source is None or node is None or not draws(source, node):
        return None
    operand = case.origin.inputs[0] if case.origin.inputs else None
    row = f"in row {operand.index[0]} " if operand is not None and operand.index else ""
    return (
        f"{row}every choice is masked, so there is nothing to draw from: the state itself is the "
        "fault. Decide what it means (the episode ends, a pass) before it is sampled; a finite "
        "mask would draw what is forbidden"
    )


def _underflowing_product(case: Case) -> str | None:
    """A likelihood that is carried as a product, step by step."""
    if case.mechanism not in ("log_nonpositive", "gradient_singularity", "division_by_zero"):
        return None
    makers = case.culprit.upstream if case.culprit is not None else ()
    factors = [op for op in makers if op.name in PRODUCTS]
    sites = {(op.site.file, op.site.line) for op in factors if op.site is not None}
    codes = {cause.code for cause in case.anomaly.finding.causes}
    if "underflow" not in codes or len(factors) < LONG or len(sites) * 2 > len(factors):
        return None
    line = next(op.site.line for op in factors if op.site is not None)
    return (
        f"the product that line {line} carries from step to step has rounded to 0. Carry its "
        "logarithm: add the logarithms of the factors, and sum over states with `logsumexp`; or "
        "divide by the sum at each step and add up the logarithms of these sums"
    )


def _underflowed_kernel(case: Case) -> str | None:
    """1 / (K @ v) with K = exp(-cost / reg): Sinkhorn's iteration."""
    exp = underflowed_kernel(case)
    if exp is None:
        return None
    low = exp.inputs[0].value if exp.inputs else None
    where = f"in line {exp.site.line} " if exp.site is not None else ""
    return (
        f"exp({number(low)}) {where}rounds to 0, and the scalings divide by sums of such values. "
        "Iterate on the logarithms of the scalings: log u = -logsumexp(log K + log v), and the "
        "same for v; or use a larger regularisation"
    )


def _odd_data(case: Case) -> str | None:
    odd = case.anomaly.evidence.around.oddity
    if odd is None or not any(c.code == "bad_data" for c in case.anomaly.finding.causes):
        return None
    where = f" in row {odd.row}" if odd.row is not None else ""
    where += f" of column {odd.column}" if odd.column is not None else ""
    return (
        f"the data holds {number(odd.value)}{where} where {number(odd.typical)} is typical: "
        "only its owner knows whether that is a measurement, a unit or a mark of a missing value"
    )
