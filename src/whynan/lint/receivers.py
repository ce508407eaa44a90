"""Of a method call on something unknown: is that the operand, or an object that has the operation?

`ops.softmax(x, dim=-1)` may be called on a library that was handed over, on `self`, on anything. The
arguments tell: a tensor's method has no place for them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from whynan.lint.terms import Term, resolve
from whynan.ops.op import Op
from whynan.ops.table import row

# Arguments that may be tensors, or anything a tensor is combined with; the others are settings.
VALUES = frozenset({
    "condition", "input", "other", "target", "mask", "value", "min", "max", "exponent", "size",
    "fill_value",
})  # fmt: skip
# What a variable is called that holds a setting.
SETTING = re.compile(r"(.*[_.])?(dims?|axis|axes|d|p|ord|eps|keepdims?|correction|unbiased)\d*")
ALONE = ("input",)  # also of operations whose other arguments the table does not know
MAKES_DIMENSIONS = ("tuple", "list", "range")


def is_operand(operation: str, receiver: Term, args: Sequence[Term], kw: Mapping[str, Term]) -> bool:  # fmt: skip
    """Whether the receiver can be what the operation is about; one of a known kind is."""
    if receiver.kind != "?" or any(isinstance(arg.node, ast.Starred) for arg in args):
        return True
    if receiver.op == "name" and receiver.value == "self":
        return False
    op = row(operation)
    if _of_one_number(op):
        return not args
    if operation == "where":  # x.where(condition, other)
        return len(args) < 3
    if op.takes == ALONE:
        return True
    if not set(op.takes[: len(args) + 1]).isdisjoint(kw):
        return False  # said twice
    either = operation in ("max", "min")  # of all along a dimension, or of two tensors
    places = zip_longest(op.takes[1:], args)
    return either or all(arg is None or _fits(arg, name) for name, arg in places)


def _of_one_number(op: Op) -> bool:
    described = op.formula or op.range or op.slope or (op.domain is not None and op.of == "self")
    others = op.does & {"casts", "compares", "random"}
    return op.takes == ALONE and op.reads == "elementwise" and bool(described) and not others


def _fits(arg: Term, name: str | None) -> bool:
    value = resolve(arg)
    if name is None:  # one too many, but for a type of numbers: `x.softmax(-1, torch.float64)`
        return value.op == "imported"
    if name in VALUES or value.op in ("const", "tuple") or value.kind == "scalar":
        return True
    if value.op == "unknown" and value.value in MAKES_DIMENSIONS:
        return True
    return arg.op in ("name", "attr") and SETTING.fullmatch(str(arg.value)) is not None
