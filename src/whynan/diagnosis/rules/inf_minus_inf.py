"""An infinity minus an infinity.

What it catches
    A sum or difference in which infinities that the program wrote on purpose cancel: masks of
    both signs, `inf - inf`, a softmax over +inf.

Why it hurts
    inf - inf has no value: the result is NaN.

Example
    scores = scores.masked_fill(mask, float("-inf"))
    gap = scores.max(-1).values - scores.min(-1).values - float("inf")

Use instead
    Keep infinities out of arithmetic: select with the mask, or fill with `torch.finfo(x.dtype).min`.

When it is fine
    Adding infinities of the same sign, comparing with them, or taking a minimum.
"""

from __future__ import annotations

import math

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, spoken, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, number


@rule("N035", "inf-minus-inf", "inf_minus_inf")
def inf_minus_inf(op: OpRecord, evidence: Evidence) -> Finding | None:
    infinite = [o for o in op.inputs if o.value is not None and math.isinf(o.value)]
    scalars = [v for v in op.scalars.values() if isinstance(v, float) and math.isinf(v)]
    if op.derived or not (infinite or scalars):
        return None
    values = ", ".join(f"{spoken(op, o)} = {number(o.value)}" for o in infinite)
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` combined infinities that have no difference",
        observed=tuple(v for v in (values and f"operands there: {values}",) if v),
        inferred=("these infinities were written by the program; the NaN is made here",),
        label=origin_label(op),
        culprit=op.inputs.index(infinite[0]) if infinite else None,
        fixes=(Fix(kind="finite_fill", title="fill with `torch.finfo(x.dtype).min`, or select with the mask instead of adding infinities"),),
    )  # fmt: skip
