"""Zero times an infinity.

What it catches
    A product of 0 with an infinity that the program wrote: `mask * float("-inf")`, or a matrix
    product over such values.

Why it hurts
    0 * inf has no value: the result is NaN, exactly where the mask meant "leave it alone".

Example
    bias = (1 - mask) * float("-inf")

Use instead
    bias = torch.zeros_like(mask).masked_fill(mask == 0, float("-inf"))

When it is fine
    When no factor can be 0.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, some_of, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord
from whynan.ops.table import row


@rule("N023", "zero-times-inf", "zero_times_inf")
def zero_times_inf(op: OpRecord, evidence: Evidence) -> Finding | None:
    infinite = [o for o in op.inputs if o.value is not None and math.isinf(o.value)]
    scalars = [v for v in op.scalars.values() if isinstance(v, float) and math.isinf(v)]
    if op.derived or not (infinite or scalars) or op.value == op.value:
        return None
    others = [o for o in op.inputs if o not in infinite]
    if row(op.name).reads in ("product", "window") and all(o.value for o in others):
        return None  # no term is 0 times an infinity: it is their sum that is not defined
    zero = next((o for o in others if o.value == 0), others[0] if others else None)
    observed = []
    if zero is not None and zero.stats is not None and zero.stats.zeros:
        observed.append(some_of(zero, zero.stats.zeros, "exactly 0"))
    held = next((o for o in infinite if (o.source or "").startswith(("parameter", "buffer"))), None)
    if held is not None:
        return _already_infinite(op, evidence, held)
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` multiplied 0 by an infinity",
        observed=tuple(observed),
        inferred=("the program wrote the infinity on purpose; here it turns into NaN",),
        label=origin_label(op),
        culprit=op.inputs.index(zero) if zero is not None else None,
        fixes=(Fix(kind="masked_fill", title="select instead of multiplying: `x.masked_fill(mask, value)` or `torch.where`"),),
    )  # fmt: skip


def _already_infinite(op: OpRecord, evidence: Evidence, held: Operand) -> Finding:
    """A weight that was drawn with an infinite spread, say: nobody meant that as a mask."""
    made = next((m for m in held.upstream if m.site is not None), None)
    where = f"{os.path.basename(made.site.file)}:{made.site.line}, " if made is not None and made.site else ""  # fmt: skip
    infinities = held.stats.inf if held.stats is not None else 0
    return Finding(
        headline=f"{subject(evidence)} because {held.source} is infinite",
        observed=(some_of(replace(held, name=held.source), infinities, "infinite"),),
        label=origin_label(op),
        culprit=op.inputs.index(held),
        fixes=(Fix(kind="look_upstream", title=f"look at what gives {held.source} its values ({where}its initialisation or what it was loaded from), and keep it finite there"),),
    )  # fmt: skip
