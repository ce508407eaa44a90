"""An operation that cannot be looked into.

What it catches
    Finite values in, a non-finite value out of a custom operator or a fused kernel whose inner
    steps do not run as recorded operations.

Why it hurts
    The exact step inside is unknown; the operands and the rows that came out bad are known.

Example
    out = my_extension.attention(q, k, v)

Use instead
    For this step, call the same computation written in plain PyTorch; then every operation inside
    is recorded.

When it is fine
    Never by design; it says where the recording ends.
"""

from __future__ import annotations

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, spoken, subject
from whynan.model import Evidence, Finding, Fix, OpRecord
from whynan.ops.table import reading

TORCH = ("aten", "prims")
OUT_OF_PLACE = Fix(kind="out_of_place", title="write it without the `_`, not in place: then its operands are shown")  # fmt: skip
ELEMENTARY = reading("elementwise")


@rule("N090", "opaque-op", "opaque", everywhere=True)
def opaque_op(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.op.split(".")[0] in TORCH:
        return None
    return unexplained(op, evidence)


def unexplained(op: OpRecord, evidence: Evidence) -> Finding:
    """The honest limit: where, but not by which step."""
    if op.op == "numpy.unseen" and op.site is not None:  # the evidence says what is not known
        made = f"NumPy's `{op.site.expression or op.site.source}` made it"
        said = f"NumPy said `{op.scalars.get('said')}` here"
        return Finding(
            headline=f"{subject(evidence)}: {made}", observed=(said,), label=origin_label(op)
        )
    if op.op in ("jax.unseen", "scipy.unseen") and op.site is not None:
        same = [
            o
            for o in op.inputs
            if o.stats and o.stats.min is not None and o.stats.min == o.stats.max
        ]
        return Finding(
            headline=f"{subject(evidence)}: `{op.site.expression or op.site.source}` made it out of finite values",
            observed=tuple(f"all {o.stats.count:,} values of its {o.role} are the same" for o in same if o.stats),
            label=origin_label(op),
        )  # fmt: skip
    name = "::".join(op.op.split(".")[:2])
    # The arguments of a custom operator have the names that its author gave them.
    custom = op.op.split(".")[0] not in TORCH
    named = [(o.name or o.role if custom else spoken(op, o), o.stats) for o in op.inputs[:4]]
    gone = [spoken(op, o) for o in op.inputs if o.stats is None and o.value is None]
    if not custom and op.name in ELEMENTARY and (gone or not any(stats for _, stats in named)):
        lost = "operands are" if len(gone) == len(op.inputs) else "operand is"
        which = f"what {' and '.join(gone)} was" if gone else "what it was given"
        return Finding(
            headline=f"{subject(evidence)}: it appeared in `{short_call(op)}`, whose {lost} lost",
            observed=tuple(f"{what}: {stats}" for what, stats in named if stats),
            unknown=(f"{which}: that is no longer in memory, or was changed since",),
            label=origin_label(op),
            fixes=(OUT_OF_PLACE,) if op.op.split(".")[1].endswith("_") else (),
        )
    return Finding(
        headline=f"{subject(evidence)}: it appeared inside `{name}`, which cannot be looked into",
        observed=tuple(f"{what}: {stats}" for what, stats in named if stats),
        unknown=(f"which step inside `{short_call(op)}` made the non-finite value",),
        label=origin_label(op),
        fixes=(
            Fix(kind="plain_pytorch", title="run this step with the operation written in plain PyTorch to trace inside it"),
        ),
    )  # fmt: skip
