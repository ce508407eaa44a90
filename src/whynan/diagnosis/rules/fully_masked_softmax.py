"""Softmax over a row in which everything is masked.

What it catches
    A softmax or log_softmax, alone or inside attention, whose slice holds nothing but -inf.

Why it hurts
    It computes -inf - (-inf): every weight of that row is NaN, and the loss with it.

Example
    weights = scores.masked_fill(pad, float("-inf")).softmax(-1)      # a fully padded row

Use instead
    Leave each row at least one visible key, use `scaled_dot_product_attention` (it returns 0 for
    such rows), or fill with `torch.finfo(scores.dtype).min`.

When it is fine
    Rows with at least one finite score: -inf becomes a weight of exactly 0.
"""

from __future__ import annotations

from whynan.diagnosis.makers import MASKS
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import at, origin_label, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord

GUARD = Fix(
    kind="guard_mask", title="leave each row at least one unmasked entry, or drop such rows"
)
GIVE_A_KEY = Fix(kind="guard_mask", title="give every row of the mask at least one visible key, or leave out samples that have none")  # fmt: skip
FINITE_FILL = Fix(kind="finite_fill", title="mask with `torch.finfo(scores.dtype).min` instead of -inf; such rows become uniform")  # fmt: skip


@rule("N031", "fully-masked-softmax", "all_masked_softmax")
def fully_masked_softmax(op: OpRecord, evidence: Evidence) -> Finding | None:
    x = op.operand(*MASKS)
    part = (x.slice_stats or x.stats) if x is not None else None
    if op.derived or part is None or x is None or part.count == 0 or op.value == float("-inf"):
        return None
    if part.neginf < part.count:
        return None
    row = op.outputs[0].index if op.outputs else None
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was given a row that is entirely masked",
        observed=(f"all {part.count} scores of the row{at(row[:-1] if row else None)} are -inf",),
        label=origin_label(op),
        culprit=op.inputs.index(x),
        fixes=(GIVE_A_KEY,) if _is_filled_by_torch(x) else (GUARD, FINITE_FILL),
    )


def _is_filled_by_torch(x: Operand) -> bool:
    """Whether a mask of booleans was given, and torch's own code put the -inf in its place."""
    fill = next((op for op in x.upstream if op.name in ("masked_fill", "where")), None)
    return fill is not None and fill.inside is not None
