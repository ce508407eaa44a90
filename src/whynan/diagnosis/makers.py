"""What made an operand: questions that rules and causes share."""

from __future__ import annotations

import math
import re

from whynan.model import Operand, OpRecord

CHOOSING = frozenset({"index", "gather", "index_select", "select"})
EXPONENTIALS = frozenset({"_softmax", "_safe_softmax", "sigmoid", "exp", "exp2"})
LEFT_OUT = {
    "where": "`where` left this element out afterwards, which is too late",
    "masked_fill": "`masked_fill` replaced this element afterwards, which is too late",
    "masked_select": "this element was not selected afterwards, which is too late",
    "index": "this element was not selected afterwards, which is too late",
    "slice": "this element was not selected afterwards, which is too late",
    "gather": "this element was not selected afterwards, which is too late",
    "index_select": "this element was not selected afterwards, which is too late",
    "abs": "`abs` has slope 0 at 0",
    "relu": "`relu` is flat there",
    "clamp": "`clamp` is flat there",
    "clamp_min": "`clamp` is flat there",
    "hardtanh": "`clamp` is flat there",
}
CHOICES = frozenset({"max", "min", "amax", "amin", "maximum", "minimum", "topk", "aminmax"})


def maker_of(operand: Operand | None) -> OpRecord | None:
    """The operation that computed the value; choosing elements in between changes nothing."""
    made = operand.upstream if operand is not None else ()
    return next((op for op in made if op.name not in CHOOSING), None)


def masked_by(operand: Operand | None) -> OpRecord | None:
    """The softmax (or `exp`) whose exact 0 was meant: its argument is -inf, nothing was rounded."""
    maker = maker_of(operand)
    if maker is None or maker.name not in EXPONENTIALS or maker.value != 0 or not maker.inputs:
        return None
    return maker if maker.inputs[0].value == float("-inf") else None


def vanishing_divisor(op: OpRecord) -> Operand | None:
    """The divisor, where its smallness made the quotient overflow rather than the dividend."""
    role = {"div": "other", "reciprocal": "self", "rsqrt": "self", "addcdiv": "tensor2"}
    divisor = op.operand(role.get(op.name, ""))
    if divisor is None or not divisor.value or not math.isfinite(divisor.value):
        return None
    dividend = op.operand("tensor1" if op.name == "addcdiv" else "self")
    over = abs(dividend.value or 1.0) if dividend not in (None, divisor) else 1.0
    return divisor if abs(divisor.value) < 1 / max(over, 1.0) else None


def forward_of(node: str | None) -> str:
    """`sqrt` for `SqrtBackward0`."""
    bare = re.sub(r"Backward\d*$", "", (node or "").split("::")[-1])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower()


def why_no_gradient(gradient: Operand) -> str | None:
    """What made an arriving gradient 0, as far as the backward pass was seen to make it."""
    maker = None
    for op in gradient.upstream:
        if not op.derived or op.value != 0:
            break
        maker = op
    if maker is None:
        return None
    forward = forward_of(maker.node)
    if forward in CHOICES:
        return f"`{forward}` chose another element"
    if forward == "mul" and [o.value for o in maker.inputs[1:]] == [0] and maker.inputs[0].value:
        return "this element was multiplied by 0 afterwards, which is too late"
    return LEFT_OUT.get(forward)
