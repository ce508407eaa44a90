"""An infinity divided by an infinity.

What it catches
    A quotient of two infinities that the program wrote on purpose.

Why it hurts
    inf / inf has no value: the result is NaN.

Example
    weight = distance / distance.max()      # both are the starting value inf

Use instead
    Replace the infinities first, or divide only the finite entries.

When it is fine
    A finite number over an infinity is 0.
"""

from __future__ import annotations

import math

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, spoken, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, number


@rule("N024", "inf-over-inf", "inf_over_inf")
def inf_over_inf(op: OpRecord, evidence: Evidence) -> Finding | None:
    infinite = [o for o in op.inputs if o.value is not None and math.isinf(o.value)]
    if op.derived or not infinite:
        return None
    values = ", ".join(f"{spoken(op, o)} = {number(o.value)}" for o in op.inputs)
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` divided an infinity by an infinity",
        observed=(f"it was given {values}",),
        inferred=("the program wrote these infinities on purpose; here they turn into NaN",),
        label=origin_label(op),
        culprit=op.inputs.index(infinite[0]),
        fixes=(Fix(kind="select_finite", title="replace the infinities before dividing, or divide only where both are finite"),),
    )  # fmt: skip
