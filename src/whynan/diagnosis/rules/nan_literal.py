"""A NaN, or a harmful infinity, that the program wrote itself.

What it catches
    `float("nan")` assigned, filled or selected into a tensor that then reached the loss; an
    infinity written on purpose that became the loss itself.

Why it hurts
    NaN spreads through every sum it meets; no optimizer step survives it.

Example
    y = torch.where(x > 0, x, torch.tensor(float("nan")))
    loss = torch.log(y).mean()

Use instead
    Select the valid entries first, or average them with `torch.nanmean`.

When it is fine
    As a mark for missing values that are masked out before any arithmetic.
"""

from __future__ import annotations

from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, number


@rule("N042", "nan-literal", "nan_literal", kinds=("literal",))
def nan_literal(op: OpRecord, evidence: Evidence) -> Finding | None:
    return Finding(
        headline=f"{subject(evidence)} because the program itself wrote {number(op.value)} here",
        observed=(f"the value {number(op.value)} stands in the source, it was not computed",),
        label=origin_label(op),
        fixes=(
            Fix(kind="mask_out", title="select the valid entries before computing with them, or use `nanmean`/`nansum`"),
        ),
    )  # fmt: skip
