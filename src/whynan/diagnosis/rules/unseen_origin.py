"""Harm whose origin was not seen.

What it catches
    A non-finite loss, gradient or parameter that the guard saw while no operations were being
    recorded, in a step that could not be repeated.

Why it hurts
    The harm is certain; which operation made the value is not known, and a guess would mislead.

Example
    A loop that draws its batches from a source that cannot be asked again, on a machine where two
    runs with the same seed differ.

Use instead
    Run the script again with `whynan run --mode trace`, which records every operation from the
    start. If the failure does not come back, make the run repeatable: set all seeds,
    `torch.use_deterministic_algorithms(True)`, `DataLoader(..., generator=...)`.

When it is fine
    Never by design; it says what is known and what is not.
"""

from __future__ import annotations

from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import subject
from whynan.model import Evidence, Finding, Fix, OpRecord


@rule("N091", "unseen-origin", "opaque", kinds=("unseen",))
def unseen_origin(op: OpRecord, evidence: Evidence) -> Finding | None:
    return Finding(
        headline=f"{subject(evidence)} at step {evidence.step}; the operation that made it was not seen",
        observed=(f"the guard saw it at step {evidence.step}; the steps before it were healthy",),
        unknown=("which operation made the first non-finite value",),
        fixes=(
            Fix(kind="trace", title="run it once with `whynan run --mode trace`; fix all seeds if it does not come back"),
        ),
    )  # fmt: skip
