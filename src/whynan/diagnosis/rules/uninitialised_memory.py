"""Memory that was read before anything was written to it.

What it catches
    A value read from `torch.empty`, `empty_like`, `new_empty` or `torch.Tensor(n)` that no
    operation had filled.

Why it hurts
    The memory holds whatever was there before, often NaN or huge numbers, and differs from run
    to run.

Example
    total = torch.empty(3)
    total += x.sum(0)

Use instead
    total = torch.zeros(3)

When it is fine
    When every element is written first, by `copy_`, an initialiser, `out=` or index assignment.
"""

from __future__ import annotations

import os

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord


@rule("N041", "uninitialised-memory", "uninitialised_memory", kinds=("uninitialised",))
def uninitialised_memory(op: OpRecord, evidence: Evidence) -> Finding | None:
    read = next((o for o in op.inputs if o.upstream and "empty" in o.upstream[0].name), None)
    which = f"`{read.name}`, " if read is not None and read.name else ""
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` read {which}memory that was never written",
        observed=(_allocated(op, read),),
        label=origin_label(op),
        culprit=op.inputs.index(read) if read is not None else None,
        fixes=(
            Fix(kind="zeros", title="allocate with `torch.zeros` or `torch.full`, or assign every element first"),
        ),
    )  # fmt: skip


def _allocated(op: OpRecord, read: Operand | None) -> str:
    site = read.upstream[0].site if read is not None else None
    if site is None:
        return "the element was allocated by `torch.empty` or a relative, and never assigned"
    what = f"`{site.expression}`" if site.expression else "this line"
    held = f" for {read.source}" if read is not None and read.source else ""
    same = op.site is None or op.site.file == site.file
    place = f"line {site.line}" if same else f"{os.path.basename(site.file)}:{site.line}"
    return f"{place}: {what} allocated it{held}; nothing was written there since"
