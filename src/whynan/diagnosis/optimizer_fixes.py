"""What to change where the origin is inside an optimizer of torch's: nobody can rewrite its lines."""

from __future__ import annotations

from whynan.model import Finding, Fix, OpRecord

STEP = "Optimizer.profile_hook_step"  # the frame that torch puts around each `step()`
# What a rule said with the optimizer in mind.
SETTINGS = frozenset(
    {"optimizer_eps", "clip_gradients", "lower_lr", "look_upstream", "earlier_checkpoint"}
)
CENTERED = Fix(kind="not_centered", title="the root is part of the optimizer's own update: use `centered=False`, or another optimizer such as Adam")  # fmt: skip
UNFUSED = Fix(kind="not_fused", title="run it once with `fused=False`: then the operations of the update are recorded one by one")  # fmt: skip
EPS = Fix(kind="optimizer_eps", title="give the optimizer a larger eps, which keeps its divisor away from 0")  # fmt: skip
CLIP = Fix(kind="clip_gradients", title="clip the gradients before `step()`")
LOWER = Fix(kind="lower_lr", title="lower the learning rate, or use another optimizer")
EARLIER = Fix(kind="earlier_checkpoint", title="an average of squares is never negative: it was loaded like that, so load another checkpoint, or let the optimizer begin anew")  # fmt: skip


def is_torchs_update(op: OpRecord) -> bool:
    """Whether the operation is a line of torch's own optimizer, not of one written by hand."""
    return op.phase == "optimizer" and (op.inside or "").startswith(STEP)


def takes_off_a_square(op: OpRecord) -> bool:
    """As a centred RMSprop does, torch's or written by hand: `average.addcmul(mean, mean, value=-1)`."""
    maker = next((o.upstream[0] for o in op.inputs[:1] if o.upstream), None)
    value = maker.scalar("value") if maker is not None and maker.name == "addcmul" else None
    return value is not None and value < 0


def negative_average(op: OpRecord) -> float | None:
    """What an average of squares was before this update, if it was below 0 then."""
    maker = next((o.upstream[0] for o in op.inputs[:1] if o.upstream), None)
    if maker is None or maker.name not in ("addcmul", "lerp") or takes_off_a_square(op):
        return None
    before = next((o.value for o in maker.inputs if o.role == "self"), None)
    return before if before is not None and before < 0 else None


def optimizer_fixes(op: OpRecord, finding: Finding) -> tuple[Fix, ...]:
    """What the user can do about it: the optimizer's settings, the gradients, another one."""
    if finding.mechanism == "sqrt_negative" and takes_off_a_square(op):
        return (CENTERED,)
    if finding.mechanism == "sqrt_negative" and negative_average(op) is not None:
        return (EARLIER,)
    fitting = tuple(fix for fix in finding.fixes if fix.kind in SETTINGS)
    if fitting:
        return fitting
    first = {"opaque": (UNFUSED,) if "fused" in op.op else (), "division_by_zero": (EPS,)}
    return (*first.get(finding.mechanism, ()), CLIP, LOWER)
