"""A NaN, or a harmful infinity, that the program handed in itself.

What it catches
    `float("nan")` assigned, filled or selected into a tensor that then reached the loss; an
    infinity written on purpose that became the loss itself; a plain Python or NumPy number, such as
    a learning rate, that was already NaN or infinite when an operation got it.

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

import math
import re
from collections.abc import Mapping

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, Scalar, number
from whynan.positions import written_at
from whynan.registry import rule

LITERAL = re.compile(r"nan\b|inf\b|infinity\b", re.IGNORECASE)


@rule("N042", "nan-literal", "nan_literal", kinds=("literal",))
def nan_literal(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.site is None or LITERAL.search(written_at(op.site)):
        return Finding(
            headline=f"{subject(evidence)} because the program itself wrote {number(op.value)} here",
            observed=(f"the value {number(op.value)} stands in the source, it was not computed",),
            label=origin_label(op),
            fixes=(
                Fix(kind="mask_out", title="select the valid entries before computing with them, or use `nanmean`/`nansum`"),
            ),
        )  # fmt: skip
    given = _nonfinite(op.scalars)
    what = f"was given the number {number(next(iter(given.values()), op.value))}"
    where = "where that number is computed"
    hyper = _nonfinite(evidence.hyper) if op.phase == "optimizer" else {}
    for name, value in list(hyper.items())[:1]:
        what = f"had {name} = {number(value)}"
        where = f"what sets {name}, such as a schedule"
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` {what}",
        observed=("it is a plain number of Python or NumPy, not a tensor",),
        unknown=("how it was computed: only tensors are recorded",),
        label=origin_label(op),
        fixes=(Fix(kind="look_upstream", title=f"look at {where}, and keep it finite there"),),
    )


def _nonfinite(numbers: Mapping[str, Scalar]) -> dict[str, float]:
    return {n: v for n, v in numbers.items() if isinstance(v, float) and not math.isfinite(v)}
