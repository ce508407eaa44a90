"""What made an operand: questions that rules and causes share."""

from __future__ import annotations

from whynan.model import Operand, OpRecord

CHOOSING = frozenset({"index", "gather", "index_select", "select"})
EXPONENTIALS = frozenset({"_softmax", "_safe_softmax", "sigmoid", "exp", "exp2"})


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
