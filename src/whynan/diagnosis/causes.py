"""Why the operands were like that, as far as the recorded values show it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace

from whynan.diagnosis.by_change import from_change
from whynan.diagnosis.circumstances import causes_around, odd_row, scaled_by_hand
from whynan.diagnosis.decompositions import from_decomposition
from whynan.diagnosis.framework import autocast_of
from whynan.diagnosis.given import (
    MAX_SHOWN,
    a_setting,
    came_in,
    computed,
    computed_argument,
    kept,
    place_of,
    small_exponent,
    too_few,
    unbounded,
)
from whynan.diagnosis.makers import (
    CANCELLED,
    CHOOSING,
    EXPONENTIALS,
    NORMS,
    SPREADS,
    counts,
    counts_a_mask,
    empty_guard,
    is_range,
    lost_eps,
    maker_of,
    makers_of,
    masked_by,
    vanishing_divisor,
    written,
)
from whynan.diagnosis.masks import from_mask
from whynan.diagnosis.optimizer_fixes import negative_average, takes_off_a_square
from whynan.diagnosis.words import at, dtype_tiny, plural
from whynan.diagnosis.zeros import why_zero
from whynan.model import ITSELF, REFUSED, Cause, Evidence, Operand, OpRecord, Setting, number
from whynan.ops.table import forward_of, row, spelled

UNDERFLOWING = spelled(lambda op: 0 in op.rounds)
SATURATING = spelled(lambda op: 1 in op.rounds)
TOGETHER = NORMS | {"sum", "mean"}  # 0 only if all squares are
NEAR = 3
LEAST = 1e-37  # about the smallest normal float32
MAX_EXPONENT = 700.0  # of a float64
ROUNDS = 1e-7  # float32 tells numbers near 1 apart from about here
HALF = frozenset({"float16", "bfloat16"})
UNGUARDED = frozenset({"division_by_zero", "log_nonpositive"})
# What the numbers next to the origin show, which an odd row of the data may have brought there.
LOCAL = frozenset({"underflow", "saturation", "unbounded", "missing_eps", "wrong_function", "low_precision"})  # fmt: skip
LEAVES = frozenset({"log_nonpositive", "sqrt_negative", "invalid_domain"})


def causes_of(
    evidence: Evidence, mechanism: str, op: OpRecord, culprit: Operand | None
) -> tuple[Cause, ...]:
    """The causes whose evidence is in the recording, most telling first."""
    found, setting = _near(evidence, mechanism, op, culprit), evidence.around.setting
    small = evidence.around.small_eps
    if small is not None:
        found = [_with_place(cause, small) for cause in found]
    if culprit is not None and mechanism in LEAVES:
        found += came_in(evidence, op, culprit)
    autocast = autocast_of(op)
    found += [autocast] if autocast is not None else []
    found += scaled_by_hand(evidence) if mechanism == "overflow" else ()
    found += _from_precision(op, culprit)
    found += causes_around(evidence, mechanism, culprit)
    if not found and culprit is not None:
        found += kept(op, culprit) if mechanism == "sqrt_negative" else ()
    if setting is not None and not found:
        found += a_setting(setting)
    if not found and culprit is not None and mechanism in LEAVES:
        found += unbounded(op, culprit)
    unique: dict[str, Cause] = {}
    for cause in _telling_first(found, evidence, mechanism):
        unique.setdefault(cause.code, cause)
    return tuple(unique.values())


def _near(evidence: Evidence, mechanism: str, op: OpRecord, culprit: Operand | None) -> list[Cause]:
    """What the operation and the history of its operand tell."""
    found = list(_from_operand(op, culprit)) if culprit is not None else []
    if op.op == REFUSED and culprit is not None and not found:
        found += unbounded(op, culprit)
    if culprit is not None and vanishing_divisor(op) is culprit:
        found += _from_small(op, culprit)
    found += _from_function(op, culprit)
    found += from_decomposition(mechanism, op, culprit)
    found += from_mask(mechanism, op, culprit)
    setting = evidence.around.setting
    given = (*op.scalars.values(), culprit.value if culprit is not None else None)
    if setting is not None and mechanism == "overflow" and setting.value in given:
        found += a_setting(setting)  # its own number: no other type would make it a sensible one
    if not found and culprit is not None and mechanism == "empty_reduction":
        found += too_few(op, culprit)
    found += computed_argument(op)
    found += _from_optimizer(evidence, mechanism, op)
    found += _from_rounding(op, culprit) if culprit is not None else ()
    if not found and culprit is not None and mechanism in UNGUARDED:
        found += [*computed(op, culprit)] or why_zero(evidence, op, culprit)
        if not any(cause.code == "empty_mask" for cause in found):
            found += _unguarded(mechanism, op, culprit)
    if not found and culprit is not None and mechanism == "gradient_singularity":
        found += [*small_exponent(evidence, op, culprit)] or [*_adds_nothing(op, culprit)]
        found = found or [*why_zero(evidence, op, culprit)]
    return found


def _telling_first(found: list[Cause], evidence: Evidence, mechanism: str) -> list[Cause]:
    """Where no more is known than that nothing bounds a number: what that number comes from."""
    setting = evidence.around.setting
    if (
        {cause.code for cause in found} == {"missing_eps"}
        and setting is not None
        and not setting.value
    ):
        found = [*a_setting(setting), *found]
    if {cause.code for cause in found} <= {"missing_eps"}:
        found = [*from_change(evidence.change), *found]
    if {cause.code for cause in found} <= LOCAL:
        found = [*odd_row(evidence, mechanism), *found]
    return found


def _from_operand(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    for distance, maker in enumerate(written(op, culprit)):
        if maker.derived:
            return  # torch's own derivative formula: nothing that anybody wrote
        if distance >= NEAR and maker.value != 0:
            return  # far back, only a trail of zeros explains a zero
        if maker.value == 0 and culprit.value not in (0, None):
            return  # what became of that 0 is no longer one
        if maker.name in SATURATING and maker.value in (1, -1):
            reason = next((o.value for o in maker.inputs if o.value is not None), None)
            text = f"{place_of(maker, op)}: `{maker.name.strip('_')}` of {number(reason)} rounded to exactly {number(maker.value)}"
            yield Cause(code="saturation", evidence=text)
            return
        if maker.name in SPREADS and maker.value == 0:
            where = at(maker.outputs[0].index) if maker.outputs else ""
            text = f"{place_of(maker, op)}: all values{where} are equal"
            yield Cause(code="constant_input", evidence=text)
            return
        if maker.name in ("sub", "rsub") and _cancelled(maker):
            together = any(m.name in TOGETHER for m in culprit.upstream[:distance])
            found = _difference(maker, op, together=together)
            if found.code == "cancellation" and not any(o.value for o in maker.inputs):
                continue  # nothing less nothing
            yield found
            return
        if lost_eps(maker) is not None:
            yield Cause(code="eps_too_small", evidence=_told_eps(maker, op))
            return
        if maker.value == 0 and _rounds_to_zero(maker):
            yield Cause(code="underflow", evidence=_underflow(maker, op))
            return
        if (
            maker.value == 0
            and maker.name == "sum"
            and counts_a_mask(maker, culprit.upstream[distance + 1 :])
        ):
            yield Cause(code="empty_mask", evidence=_nothing_selected(maker, op))
            return


def _nothing_selected(total: OpRecord, op: OpRecord) -> str:
    stats = total.inputs[0].slice_stats or total.inputs[0].stats
    n = stats.count if stats is not None else 0
    where = at(total.outputs[0].index) if total.outputs else ""
    if where:  # one count of several: of a class, a group, a row
        return f"{place_of(total, op)}: nothing is counted{where}: all {plural(n, 'number')} added up there are 0"
    return f"{place_of(total, op)}: the mask selects none of {plural(n, 'entry', 'entries')}"


def _from_small(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """A divisor so small that its type has lost digits of it."""
    dtype = culprit.stats.dtype if culprit.stats is not None else op.dtype
    tiny, maker = dtype_tiny(dtype), maker_of(culprit)
    if tiny is None or maker is None or maker.derived or maker.name == "lift_fresh":
        return  # a number that came in as small as that did not underflow
    if abs(culprit.value or 1.0) < tiny:
        what = f"`{maker.name.strip('_')}` gave {number(culprit.value)}"
        text = f"{place_of(maker, op)}: {what}, and below {number(tiny)} {dtype} runs out of digits"
        yield Cause(code="underflow", evidence=text)


def _cancelled(maker: OpRecord) -> bool:
    """Equal values, or nearly equal large ones whose difference came out negative."""
    values = [o.value for o in maker.inputs if o.value is not None]
    if len(values) != 2 or maker.value is None:
        return False
    if maker.value == 0:
        return values[0] == values[1]
    return maker.value < 0 and abs(maker.value) < CANCELLED * max(map(abs, values))


def _difference(maker: OpRecord, op: OpRecord, *, together: bool) -> Cause:
    """A range or a spread of 0 is a constant; one value that equals the mean is not."""
    a, b = (o.value for o in maker.inputs if o.value is not None)
    if maker.value == 0 and is_range(maker):
        text = f"{place_of(maker, op)}: the largest and the smallest value are both {number(a)}"
        return Cause(code="constant_input", evidence=text)
    if maker.value == 0 and together and "mean" in makers_of(maker):
        text = f"{place_of(maker, op)}: all values equal their mean, {number(a)}"
        return Cause(code="constant_input", evidence=text)
    if maker.value == 0 and [o.source for o in maker.inputs] == [ITSELF, ITSELF]:
        where = at(maker.outputs[0].index) if maker.outputs else ""
        text = f"{place_of(maker, op)}: the same element is taken from itself{where}, as where each is paired with each"
    elif maker.value == 0:
        text = f"{place_of(maker, op)}: two equal values were subtracted"
    else:
        text = (
            f"{place_of(maker, op)}: {a:.9g} - {b:.9g} gave {number(maker.value)}, a rounding error"
        )
    return Cause(code="cancellation", evidence=text)


def _with_place(cause: Cause, small: Setting) -> Cause:
    """Of an eps that is too small: where it is set."""
    if cause.code != "eps_too_small":
        return cause
    place = f"{os.path.basename(small.file)}:{small.line}"
    return replace(cause, evidence=f"{cause.evidence} ({place} sets `{small.text}`)")


def _told_eps(maker: OpRecord, op: OpRecord) -> str:
    what = "adding" if maker.name == "add" else "a lower bound of"
    return f"{place_of(maker, op)}: {what} {number(lost_eps(maker))} in {maker.dtype} gives 0"


def _from_function(op: OpRecord, culprit: Operand | None) -> Iterator[Cause]:
    """A stable function exists for what was composed by hand."""
    function = row(forward_of(op.node) or "").name if op.derived else op.name
    if function != "log" or culprit is None or not culprit.upstream or masked_by(culprit):
        return
    # Choosing elements in between changes nothing about it.
    names = [op.name for op in culprit.upstream if op.name not in CHOOSING][:2] or [""]
    if names[0] == "_softmax":
        yield Cause(code="wrong_function", evidence="logarithm of a softmax; `log_softmax` does not round to 0")  # fmt: skip
    elif names[0] == "sigmoid":
        yield Cause(code="wrong_function", evidence="logarithm of a sigmoid; `logsigmoid` does not round to 0")  # fmt: skip
    elif names[0] in ("rsub", "sub") and names[1:] == ["sigmoid"]:
        yield Cause(code="wrong_function", evidence="log(1 - sigmoid(x)) is `logsigmoid(-x)`, which does not round")  # fmt: skip


def _from_optimizer(evidence: Evidence, mechanism: str, op: OpRecord) -> Iterator[Cause]:
    eps = evidence.hyper.get("eps")
    if mechanism == "sqrt_negative" and op.phase == "optimizer" and takes_off_a_square(op):
        yield Cause(code="cancellation", evidence="the mean square minus the squared mean came out negative, a rounding error")  # fmt: skip
    held = (
        negative_average(op) if mechanism == "sqrt_negative" and op.phase == "optimizer" else None
    )
    if held is not None:
        text = f"the optimizer held {number(held)} as an average of squares before this update: it was loaded like that"
        yield Cause(code="poisoned_state", evidence=text)
    if mechanism != "division_by_zero" or op.phase != "optimizer" or not isinstance(eps, float):
        return
    if eps == 0:
        yield Cause(code="missing_eps", evidence="the optimizer has eps 0, and the gradient was 0")
    elif op.dtype == "float16" and eps < 6e-8:
        yield Cause(code="eps_too_small", evidence=f"eps {number(eps)} is 0 in float16")


def _from_rounding(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """Half precision made an exact 0 or 1 of a number that is none, and that became the operand."""
    for maker in culprit.upstream:
        if maker.value not in (0, 1, -1):
            return
        exact = _in_full(maker) if maker.dtype in HALF else None
        if exact is None or exact == maker.value or lost_eps(maker) is not None:
            continue
        what = (
            f"a cast to {maker.dtype}"
            if maker.name == "_to_copy"
            else f"`{maker.name}` in {maker.dtype}"
        )
        text = f"{place_of(maker, op)}: {what} rounded {_apart(exact, maker.value)} to {number(maker.value)}"
        yield Cause(code="low_precision", evidence=text)
        return


def _apart(exact: float, rounded: float) -> str:
    """With as many digits as tell the two apart."""
    return next((t for n in range(4, 17) if float(t := f"{exact:.{n}g}") != rounded), str(exact))


def _in_full(maker: OpRecord) -> float | None:
    """What the operation gives in a wider type, where that is another number in float32, too."""
    values = [o.value for o in maker.inputs if o.value is not None]
    if len(values) != 1 or not abs(values[0]) < MAX_EXPONENT or maker.value is None:
        return None
    (x,), other, exact = values, maker.scalar("other"), None
    if maker.name == "add" and other is not None and maker.scalar("alpha") is None:
        exact = x + other
    elif (formula := row(maker.name).formula) is not None:
        exact = formula(x)
    if exact is None or abs(exact - maker.value) <= (ROUNDS if maker.value else LEAST):
        return None
    return exact


def _unguarded(mechanism: str, op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    if culprit.value != 0 or op.derived or masked_by(culprit):
        return
    if any(m.name == "add" and m.scalar("other", "value") for m in culprit.upstream[:NEAR]):
        return
    what = "divisor" if mechanism == "division_by_zero" else "argument"
    if counts(culprit) or _added_up(culprit):
        return  # a number of things that happens to be 0 is an empty selection, not a missing eps
    guard = empty_guard(culprit)
    text = f"nothing keeps the {what} away from 0"
    if guard is not None and guard.name == "add":
        text = f"{place_of(guard, op)}: {_shown(guard)} adds 0"
    elif guard is not None:
        text = f"{place_of(guard, op)}: a lower bound of 0 keeps nothing away from 0"
    yield Cause(code="missing_eps", evidence=text)


def _adds_nothing(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """Of a slope at 0: an eps that was meant to keep away from there, and is 0."""
    guard = empty_guard(culprit) if culprit.value == 0 else None
    if guard is not None and guard.name == "add":
        yield Cause(code="missing_eps", evidence=f"{place_of(guard, op)}: {_shown(guard)} adds 0")


def _shown(guard: OpRecord) -> str:
    written = guard.site.expression if guard.site is not None else ""
    return f"`{written}`" if written and len(written) <= MAX_SHOWN else "the eps there"


def _added_up(culprit: Operand) -> bool:
    return any(m.name in ("bincount", "index_add", "scatter_add") for m in culprit.upstream[:NEAR])


def _from_precision(op: OpRecord, culprit: Operand | None) -> Iterator[Cause]:
    dtype = op.dtype
    if dtype in HALF and op.exact is not None and op.exact - op.exact == 0:
        yield Cause(
            code="low_precision",
            evidence=f"in float64 the same operands give {number(op.exact)}; {dtype} cannot hold it",
        )
    elif dtype == "float16" and culprit is not None and _near_the_end(op, culprit):
        yield Cause(code="low_precision", evidence=f"the largest float16 is 65504; {number(culprit.value)} was close to it")  # fmt: skip
    elif dtype == "float16" and culprit is not None and any(map(lost_eps, culprit.upstream)):
        yield Cause(
            code="low_precision", evidence="the smallest float16 is 6e-8; float32 holds this eps"
        )


def _near_the_end(op: OpRecord, culprit: Operand) -> bool:
    return op.exact is None and culprit.value is not None and 3e4 < abs(culprit.value) <= 65504


def _underflow(maker: OpRecord, op: OpRecord) -> str:
    reason = next(o for o in maker.inputs if o.value is not None)
    text = (
        f"{place_of(maker, op)}: `{maker.name.strip('_')}` of {number(reason.value)} rounded to 0"
    )
    if maker.name == "_linalg_det":
        text = f"{place_of(maker, op)}: the determinant rounded to 0"
    if maker.name == "_softmax" and reason.slice_stats is not None:
        text += f"; the largest value beside it is {number(reason.slice_stats.max)}"
    return text


def _rounds_to_zero(op: OpRecord) -> bool:
    if row(op.name).reads == "product":  # else the terms of the sum may have cancelled
        values = [o.value for o in op.inputs if o.value is not None][-2:]
        return _nonzero_operands(op) and abs(math.prod(values)) < LEAST
    return op.name in UNDERFLOWING and _nonzero_operands(op)


def _nonzero_operands(op: OpRecord) -> bool:
    values = [o.value for o in op.inputs if o.value is not None]
    if not values:  # overwritten since: nothing is known of what was rounded
        return False
    # exp and softmax underflow from a finite exponent; a product only from non-zero factors.
    if op.name in EXPONENTIALS:
        return all(v - v == 0 for v in values)
    values += [v for v in op.scalars.values() if isinstance(v, (int, float))]
    return all(v != 0 for v in values)
