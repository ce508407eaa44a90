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

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord
from whynan.registry import rule


@rule("N041", "uninitialised-memory", "uninitialised_memory", kinds=("uninitialised",))
def uninitialised_memory(op: OpRecord, evidence: Evidence) -> Finding | None:
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` read memory that nothing had written",
        observed=("the element was allocated by `torch.empty` or a relative, and never assigned",),
        label=origin_label(op),
        fixes=(
            Fix(kind="zeros", title="allocate with `torch.zeros` or `torch.full`, or assign every element first"),
        ),
    )  # fmt: skip
