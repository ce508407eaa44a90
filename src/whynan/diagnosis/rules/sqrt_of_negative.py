"""Square root of a negative number.

What it catches
    `sqrt` or `rsqrt` of a value below 0, usually a difference that is 0 in exact arithmetic and
    a tiny negative number after rounding.

Why it hurts
    The result is NaN, and so is everything computed from it.

Example
    std = (x.pow(2).mean(0) - x.mean(0).pow(2)).sqrt()

Use instead
    std = x.std(0, correction=0)

When it is fine
    Never by design; a clamp at a small positive value belongs in front of the root.
"""

from __future__ import annotations

from whynan.diagnosis.makers import double_where, dropped_too_late
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import called, origin_label, some_of, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, number
from whynan.ops.table import row

CDIST = Fix(kind="stable_form", title="use a form without the subtraction, for distances `torch.cdist`")  # fmt: skip
VAR = Fix(kind="stable_form", title="use a form without the subtraction, for a variance `x.var(correction=0)`")  # fmt: skip
DEVIATIONS = Fix(kind="stable_form", title="a mean of squares minus a squared mean loses its digits: average the squared deviations from the mean instead")  # fmt: skip
EARLIER = Fix(kind="earlier_checkpoint", title="a variance is never negative: it came in like that, so go back to a checkpoint from before, or let the layer measure it anew")  # fmt: skip


def _without_subtraction(op: OpRecord, x: Operand) -> tuple[Fix, ...]:
    """By what the larger side of the difference is."""
    makers = [op.name for op in x.upstream]
    if makers[:1] not in (["sub"], ["rsub"], ["add"]):
        return ()
    if op.phase != "optimizer":  # there the gradient's own way lies behind the average
        if any(row(name).reads == "product" for name in makers):
            return (CDIST,)
        if "mean" in makers:
            return (VAR,)
    return (DEVIATIONS,) if {"pow", "square"} & set(makers[1:3]) else ()


def _is_held(x: Operand) -> bool:
    """A variance that a layer keeps: no formula is to blame."""
    return (x.source or "").startswith(("parameter", "buffer"))


def _given(x: Operand) -> str:
    return x.source if _is_held(x) and x.source else called(x, "a value")


@rule("N013", "sqrt-of-negative", "sqrt_negative")
def sqrt_of_negative(op: OpRecord, evidence: Evidence) -> Finding | None:
    x = op.operand("self", row(op.name).of)
    if op.derived or x is None or x.value is None or x.value >= 0:
        return None
    several = x.stats is not None and x.stats.count > 1
    observed = [some_of(x, x.stats.negatives, "negative")] if several and x.stats else []
    difference = x.upstream[0] if x.upstream and x.upstream[0].name in ("sub", "add") else None
    inferred = late = dropped_too_late(evidence)
    operands = [abs(o.value) for o in difference.inputs if o.value] if difference else []
    if operands and abs(x.value) < 1e-3 * max(operands):
        inferred = (*late, "a difference of nearly equal numbers: rounding decides its sign")
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was given a negative number, {_given(x)} = {number(x.value)}",
        observed=tuple(observed),
        inferred=inferred,
        label=origin_label(op),
        culprit=op.inputs.index(x),
        fixes=(double_where(short_call(op)),) if late else (EARLIER,) if _is_held(x) else (
            *_without_subtraction(op, x),
            Fix(kind="clamp_argument", title="keep the argument above 0: `.clamp(min=1e-12).sqrt()`"),
        ),
    )  # fmt: skip
