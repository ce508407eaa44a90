"""The same operation on the same operands, with another result.

What it catches
    Finite operands and a non-finite result which, computed once more by the same kernel from the same
    values, is finite: a race, or memory that the kernel read before writing it.

Why it hurts
    It comes and goes: a run that fails today passes tomorrow.

Example
    out = my_extension.scan(x)      # reads its buffer before it is filled

Use instead
    torch.use_deterministic_algorithms(True) makes torch choose other kernels or refuse, and fills
    memory that is not initialised.

When it is fine
    Never; the order of a sum may differ from run to run, but not from finite to infinite.
"""

from __future__ import annotations

from whynan.diagnosis.registry import rule
from whynan.diagnosis.rules.wrong_kernel import told, whose
from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord


@rule("N006", "unstable-result", "unstable_result", everywhere=True)
def unstable_result(op: OpRecord, evidence: Evidence) -> Finding | None:
    opinions = op.opinions
    if opinions is None or opinions.judgement != "unstable":
        return None
    return Finding(
        headline=f"{subject(evidence)} because {whose(op)} gave a different result when computed again from the same operands",
        observed=tuple(map(told, opinions.asked[:4])),
        inferred=("the kernel's result is not determined by its operands: a race, or memory that it read before writing it",),
        label=origin_label(op),
        fixes=(
            Fix(kind="deterministic", title="`torch.use_deterministic_algorithms(True)`: torch then chooses other kernels, and fills memory that is not initialised"),
            Fix(kind="report_kernel", title="report the fault to the project that the kernel comes from, with the versions and these numbers"),
        ),
    )  # fmt: skip
