"""What made an operand: questions that rules and causes share."""

from __future__ import annotations

import math
from itertools import dropwhile

from whynan.model import Evidence, Fix, Operand, OpRecord
from whynan.ops.table import forward_of, reading, row, spelled, that

CANCELLED = 1e-3  # a difference this small beside its operands has lost its leading digits
CHOOSING = that("picks")
# They are 0 of -inf, and of a small number by rounding only.
EXPONENTIALS = spelled(lambda op: 0 in op.rounds and op.range is not None and 0 not in op.range)
LARGEST, SMALLEST = that("largest"), that("smallest")
BOUNDS = that("floor")
COUNTING = that("counts")
SPREADS = that("spread")
NORMS = frozenset(row("norm").spellings)
CARRYING = CHOOSING | that("copies") | {"mul", "div"}  # from a 0 to a 0
ADDING = reading("product") | {"sum", "mean"}
SCALING = CARRYING | reading("join") | {"neg"}
MASKS = ("attn_mask", "attn_bias", "mask", "self", "input")  # the argument that hides entries
TOO_LATE = "which is too late"


def maker_of(operand: Operand | None) -> OpRecord | None:
    """The operation that computed the value; choosing elements in between changes nothing."""
    made = operand.upstream if operand is not None else ()
    return next((op for op in made if op.name not in CHOOSING), None)


def written(op: OpRecord, culprit: Operand) -> tuple[OpRecord, ...]:
    """What made it; of a slope at 0, without what its own formula made of that 0."""
    made = culprit.upstream
    if op.derived and culprit.value == 0:
        made = tuple(dropwhile(lambda m: m.derived and m.node == op.node and m.value == 0, made))
    return made


def masked_by(operand: Operand | None) -> OpRecord | None:
    """The softmax (or `exp`) whose exact 0 was meant: its argument is -inf, nothing was rounded."""
    maker = maker_of(operand)
    if maker is None or maker.name not in EXPONENTIALS or maker.value != 0 or not maker.inputs:
        return None
    return maker if maker.inputs[0].value == float("-inf") else None


def lost_eps(maker: OpRecord) -> float | None:
    """An eps that was added, or set as a lower bound, and that the type rounds to 0."""
    eps = None
    if maker.name == "add":
        eps = maker.scalar("other", "value")
    elif maker.name in BOUNDS:
        eps = maker.scalar("min", "other")
    return eps if maker.value == 0 and eps and eps > 0 else None


def empty_guard(operand: Operand) -> OpRecord | None:
    """What was meant to keep a value away from 0, and is 0 itself: an eps, a lower bound."""
    for maker in operand.upstream:
        if maker.name == "add" and maker.scalar("other", "value") == 0:
            return maker
        if maker.name in BOUNDS and maker.scalar("min", "other") == 0:
            return maker
        if maker.name not in CARRYING and maker.name != "sqrt":
            return None
    return None


def larger_eps(operand: Operand) -> tuple[Fix, ...]:
    """What helps where there is an eps already."""
    maker = next((op for op in operand.upstream if lost_eps(op)), None)
    dtype = maker.dtype if maker is not None else "float32"
    enough = "1e-4 or more" if dtype == "float16" else "1e-12 or more"
    return (
        Fix(kind="larger_eps", title=f"use a larger eps: in {dtype} {enough}, as this one rounds to 0 there"),
        Fix(kind="wider_dtype", title="or compute this part in a wider type, which holds that eps"),
    )  # fmt: skip


def counts(operand: Operand) -> bool:
    """Whether the number is one of things: bins, or the entries of a mask."""
    for place, maker in enumerate(operand.upstream):
        if maker.name in COUNTING:
            return True
        if maker.name == "sum" and counts_a_mask(maker, operand.upstream[place + 1 :]):
            return True
        if maker.name not in CARRYING:
            return False
    return False


def counts_a_mask(total: OpRecord, before: tuple[OpRecord, ...]) -> bool:
    """A sum of booleans, or of what was made from booleans or a comparison."""
    stats = (total.inputs[0].slice_stats or total.inputs[0].stats) if total.inputs else None
    if stats is None:
        return False
    if stats.dtype == "bool" or "int" in stats.dtype:
        return True
    return any(m.name in that("compares") or _casts_a_mask(m) for m in before[:1])


def _casts_a_mask(op: OpRecord) -> bool:
    dtypes = [o.stats.dtype for o in op.inputs if o.stats is not None]
    return op.name == "_to_copy" and any(d == "bool" or "int" in d for d in dtypes)


def rounded_exponential(operand: Operand) -> tuple[OpRecord, bool] | None:
    """The `exp` whose underflow is why the value is 0; and whether a sum stands in between."""
    summed = False
    for maker in operand.upstream:
        if maker.derived or maker.value != 0:
            return None
        if maker.name in ("exp", "exp2"):
            x = maker.inputs[0].value if maker.inputs else None
            return (maker, summed) if x is not None and math.isfinite(x) else None
        if maker.name not in SCALING and maker.name not in ADDING:
            return None
        summed = summed or maker.name in ADDING
    return None


def divisor_is(divisor: Operand) -> str:
    """What sort of quantity a divisor of 0 is, by what computed it; "" when that is not known."""
    if any(map(lost_eps, divisor.upstream)):
        return "eps"
    guard = empty_guard(divisor)
    if guard is not None and guard.name == "add":
        return "eps of 0"
    if counts(divisor):
        return "count"
    if rounded_exponential(divisor) is not None:
        return "exponentials"
    for place, maker in enumerate(divisor.upstream):
        if maker.derived:
            return ""
        if maker.name in SPREADS:
            return "spread"
        if maker.name in NORMS:
            return "norm"
        if maker.name == "sub" and maker.scalar("other") == 0:
            continue
        if maker.name in ("sub", "rsub"):
            return _difference_is(maker)
        if maker.name in ("sum", "mean"):
            return _total_is(maker, divisor.upstream[place + 1 :])
        if maker.name not in CARRYING | BOUNDS and maker.name not in ("sqrt", "add"):
            return ""
    return ""


def makers_of(difference: OpRecord) -> set[str]:
    """What made the two sides of a difference that is 0."""
    return {(o.source or "").removeprefix("result of ") for o in difference.inputs}


def is_range(difference: OpRecord) -> bool:
    """A largest value less a smallest one."""
    made_by = makers_of(difference)
    return bool(made_by & LARGEST and made_by & SMALLEST)


def _difference_is(difference: OpRecord) -> str:
    if is_range(difference):
        return "range"
    less_one = difference.name == "sub" and difference.scalar("other") == 1
    return "number less one" if less_one else "difference"


def _total_is(total: OpRecord, before: tuple[OpRecord, ...]) -> str:
    """Of squares it is a norm or their mean; of squared differences from a mean, a variance."""
    names = [op.name for op in before[:2]]
    if names[:1] not in (["pow"], ["square"]):
        return total.name
    centred = names[1:] == ["sub"] and "mean" in makers_of(before[1])
    if centred:
        return "spread"
    return "norm" if total.name == "sum" else "mean square"


def vanishing_divisor(op: OpRecord) -> Operand | None:
    """The divisor, where its smallness made the quotient overflow rather than the dividend."""
    divides = row(op.name)
    is_divisor = 0 in divides.poles and "division_by_zero" in divides.fails
    divisor = op.operand(divides.of) if is_divisor else None
    if divisor is None or not divisor.value or not math.isfinite(divisor.value):
        return None
    dividend = op.operand("tensor1" if op.name == "addcdiv" else "self")
    over = abs(dividend.value or 1.0) if dividend not in (None, divisor) else 1.0
    return divisor if abs(divisor.value) < 1 / max(over, 1.0) else None


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
    known = row(forward)
    if "selects" in known.does:
        return f"`{forward}` chose another element"
    if forward == "mul" and [o.value for o in maker.inputs[1:]] == [0] and maker.inputs[0].value:
        return f"this element was multiplied by 0 afterwards, {TOO_LATE}"
    if known.name in ("where", "masked_fill", "nan_to_num"):
        did = "left this element out" if known.name == "where" else "replaced this element"
        return f"`{known.name}` {did} afterwards, {TOO_LATE}"
    if "picks" in known.does:
        return f"this element was not selected afterwards, {TOO_LATE}"
    if not known.does.isdisjoint(("floor", "ceiling")):
        return "`clamp` is flat there"
    return {"abs": "`abs` has slope 0 at 0", "relu": "`relu` is flat there"}.get(forward)


def double_where(name: str) -> Fix:
    """The gradient of the branch that is not chosen must be finite, too."""
    form = "a / torch.where(ok, b, 1)" if name == "div" else f"{name}(torch.where(ok, x, 1))"
    what = "the division a safe divisor" if name == "div" else f"`{name}` a safe input"
    return Fix(
        kind="double_where",
        title=f"give {what} where the result is not used: `torch.where(ok, {form}, fill)`",
    )


def dropped_too_late(evidence: Evidence) -> tuple[str, ...]:
    """Of a bad value that the forward pass dropped, and its own derivative brought back: how."""
    path = evidence.path
    if evidence.origin.derived or not path or not all(op.derived for op in path):
        return ()
    arriving = (o for op in path for o in op.inputs if o.value == 0)
    for why in map(why_no_gradient, arriving):
        if why is not None and why.endswith(TOO_LATE):
            return (f"{why}: the slope is computed all the same, and 0 times it is NaN",)
    return ()
