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
    Keep infinities out of arithmetic: select with the mask. Where a whole row is masked, skip that row.

When it is fine
    Adding infinities of the same sign, comparing with them, or taking a minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from whynan.diagnosis.makers import CHOOSING
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, spoken, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, number
from whynan.ops.table import that

LARGEST = that("largest") | {"logsumexp", "maximum"}
ROW_WITH_A_CHOICE = Fix(kind="guard_mask", title="leave at least one entry of every row unmasked, or skip such rows; with a finite fill it would only choose among masked entries")  # fmt: skip
SELECT = Fix(kind="select_finite", title="keep infinities out of the arithmetic: select with the mask, `torch.where(mask, x, y)`, instead of adding them")  # fmt: skip


@rule("N035", "inf-minus-inf", "inf_minus_inf")
def inf_minus_inf(op: OpRecord, evidence: Evidence) -> Finding | None:
    infinite = [o for o in op.inputs if o.value is not None and math.isinf(o.value)]
    scalars = [v for v in op.scalars.values() if isinstance(v, float) and math.isinf(v)]
    if op.derived or not (infinite or scalars):
        return None
    values = ", ".join(f"{spoken(op, o)} = {number(o.value)}" for o in infinite)
    values = f"it was given {values}" if any(o.name or o.source for o in infinite) else ""
    masked = _nothing_left(infinite)
    what = (
        "was given a row of nothing but -inf: every entry is masked"
        if masked
        else "subtracted an infinity from an infinity"
    )
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` {what}",
        observed=(values,) if values else (),
        inferred=("the program wrote these infinities on purpose; here they turn into NaN",),
        label=origin_label(op),
        culprit=op.inputs.index(infinite[0]) if infinite else None,
        fixes=(ROW_WITH_A_CHOICE,) if masked else (SELECT,),
    )  # fmt: skip


def _nothing_left(infinite: Sequence[Operand]) -> bool:
    """Whether a row is taken less its own maximum or logsumexp, and that is -inf: then all of it is."""
    if [o.value for o in infinite] != [-math.inf, -math.inf]:
        return False
    makers = [op.name for op in infinite[1].upstream if op.name not in CHOOSING]
    return makers[:1] != [] and makers[0] in LARGEST
