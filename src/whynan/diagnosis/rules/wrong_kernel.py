"""A kernel that is not finite where another one is.

What it catches
    Finite operands, a non-finite result, forward or backward, and another implementation of the same
    operation that gives a finite one from the same operands in the same precision, close to that of
    float64: attention's math kernel, torch's decomposition, oneDNN or cuDNN switched off, NumPy, the
    plain optimizer instead of the fused one; or the same kernel, with a setting such as
    `torch.set_float32_matmul_precision` taken back.

Why it hurts
    The fault is not in the program: looking for it there costs days. A kernel is never accused for
    rounding, nor where an intermediate value comes near the end of the type's range.

Example
    out = F.scaled_dot_product_attention(q, k, v)     # its kernel's gradient of q is NaN

Use instead
    with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):     # a workaround
        out = F.scaled_dot_product_attention(q, k, v)

When it is fine
    Never. Report it where the kernel comes from: to PyTorch, or to the project of a custom operator.
"""

from __future__ import annotations

import math

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import at, origin_label, plural, subject
from whynan.model import Evidence, Finding, Fix, Opinion, Opinions, OpRecord, number
from whynan.ops.table import kernel

SHOWN = 5  # implementations in the report
HELP = {
    "math": Fix(kind="sdpa_math", title="workaround: choose another attention kernel, `with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):` around the call"),
    "one by one": Fix(kind="plain_optimizer", title="workaround: make the optimizer with `fused=False`"),
    "without cuDNN": Fix(kind="without_cudnn", title="workaround: `with torch.backends.cudnn.flags(enabled=False):` around the call"),
    "without oneDNN": Fix(kind="without_onednn", title="workaround: `with torch.backends.mkldnn.flags(enabled=False):` around the call"),
}  # fmt: skip
TORCHS = "https://github.com/pytorch/pytorch/issues"


@rule("N005", "wrong-kernel", "wrong_kernel", everywhere=True)
def wrong_kernel(op: OpRecord, evidence: Evidence) -> Finding | None:
    opinions = op.opinions
    if opinions is not None and opinions.judgement == "setting":
        return _reduced(op, opinions, evidence)
    if opinions is None or opinions.judgement != "kernel":
        return None
    return Finding(
        headline=f"{subject(evidence)} because the kernel {kernel_name(opinions)} is wrong: another one gives a finite value",
        observed=(_kernel(op, opinions), *map(told, opinions.asked[:SHOWN])),
        inferred=("the operands are finite and ordinary, and no correct implementation fails on them: the program's formula is not at fault",),
        label=origin_label(op),
        fixes=(*_around(op), _report(op)),
    )  # fmt: skip


def _reduced(op: OpRecord, opinions: Opinions, evidence: Evidence) -> Finding:
    """The same kernel is right once it may take its time."""
    helping = next(o for o in opinions.asked if o.is_setting and not o.nonfinite)
    switch = helping.how.removeprefix("with ")
    return Finding(
        headline=f"{subject(evidence)} because a setting lets {kernel_name(opinions)} compute less exactly: without it the value is finite",
        observed=(_kernel(op, opinions), *map(told, opinions.asked[:SHOWN])),
        inferred=("the operands are finite, and the same kernel is right with the setting taken back: the program's formula is not at fault",),
        label=origin_label(op),
        fixes=(Fix(kind="full_precision", title=f"take the setting back: `{switch}`"),),
    )  # fmt: skip


def whose(op: OpRecord) -> str:
    """The operation that the kernel computes, as the user wrote it."""
    return f"the gradient of `{short_call(op)}`" if op.derived else f"`{short_call(op)}`"


def _kernel(op: OpRecord, opinions: Opinions) -> str:
    place = opinions.device + (f" ({opinions.processor})" if opinions.processor else "")
    index = op.outputs[0].index if op.outputs else None
    bad = plural(opinions.bad, "value")
    return f"{kernel_name(opinions)} on {place}, {op.dtype}: {bad} not finite, {number(op.value)}{at(index)}"


def kernel_name(opinions: Opinions) -> str:
    return "::".join(opinions.kernel.split(".")[:2])


def told(opinion: Opinion) -> str:
    """`its decomposition, float32: 0.52; 3e-08 from float64`."""
    value = number(opinion.value) if opinion.value is not None else "?"
    here = f"{opinion.how}, {opinion.dtype}: {value}"
    if opinion.how.startswith("in float64"):
        here = f"{opinion.how}: {value}"
    if opinion.apart is not None and math.isfinite(opinion.apart):
        here += f"; {opinion.apart:.0e} from float64"
    return here


def _around(op: OpRecord) -> tuple[Fix, ...]:
    names = op.opinions.asked if op.opinions is not None else ()
    others = kernel(op.name)[0].others
    finite = {o.how for o in names if not o.nonfinite}
    helps = [HELP[o] for o in others if o in HELP and (not o.startswith("without") or o in finite)]
    return tuple(helps)


def _report(op: OpRecord) -> Fix:
    where = f"to PyTorch, {TORCHS}" if op.op.startswith(("aten.", "prims.")) else f"to the project that `{op.op.split('.')[0]}` comes from"  # fmt: skip
    return Fix(kind="report_kernel", title=f"report the fault {where}, with the versions and these numbers")  # fmt: skip
