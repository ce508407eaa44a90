"""Why an operand is exactly 0: it was cut off, drawn, added up of nothing, or the data hold it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from whynan.diagnosis.given import HANDED_ON, place_of
from whynan.diagnosis.makers import COUNTING, SPREADS, written
from whynan.diagnosis.words import at, plural, whose
from whynan.model import FROM_BEFORE, FROM_LOADER, Cause, Evidence, Operand, OpRecord, number
from whynan.ops.table import row
from whynan.source.trees import expression_of, last_word

SUMS = frozenset({"sum", "mean"})
HALF = frozenset({"float16", "bfloat16"})
INVERTING = frozenset({"reciprocal", "div", "mul"})
MAX_SHOWN = 48


def why_zero(evidence: Evidence, op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """The nearest operation that tells it, or else where the value came in."""
    if culprit.value != 0:
        return
    culprit = replace(culprit, upstream=written(op, culprit))
    if op.op.startswith("array."):
        yield from _array_spread(op, culprit)
    added: Cause | None = None
    for place, maker in enumerate(culprit.upstream):
        if maker.derived or maker.value != 0:
            break
        told = _told(maker, op) or _counted(maker, op)
        if told is None and maker.name in ("sub", "rsub"):
            told = _less_one(evidence, op, maker, culprit.upstream[place + 1 :])
        if told is not None:
            counted = added is not None and told.code == "empty_mask"
            yield replace(added, code="empty_mask") if added is not None and counted else told
            return
        added = added or _added_up(evidence, op, maker)
    if added is not None:
        yield added
    elif (
        op.phase != "optimizer"
        and not op.derived
        and all(m.name in HANDED_ON for m in culprit.upstream)
    ):
        yield from _came_in(evidence, culprit, 0.0, "")


def _array_spread(op: OpRecord, culprit: Operand) -> Iterator[Cause]:
    """`x.std(0)` of NumPy's, of which only the text is known."""
    call = expression_of(culprit.name or "")
    if isinstance(call, ast.Call) and last_word(call.func) in SPREADS | {"ptp"}:
        where = at(op.outputs[0].first or op.outputs[0].index) if op.outputs else ""
        text = f"`{culprit.name}` is 0{where}: all values are equal there"
        yield Cause(code="constant_input", evidence=text)


def _told(maker: OpRecord, op: OpRecord) -> Cause | None:
    """A negative number that was cut off; a random one that happened to be 0."""
    x = maker.inputs[0].value if maker.inputs else None
    if maker.name == "relu" and x is not None and x < 0:
        text = f"{place_of(maker, op)}: `relu` made exactly 0 of {number(x)}"
        return Cause(code="saturation", evidence=text)
    if row(maker.name).name != "rand" or maker.dtype not in ("float32", "float64", *HALF):
        return None
    if maker.dtype in HALF:
        text = f"{place_of(maker, op)}: a random number in {maker.dtype}, which has few of them, was exactly 0"
        return Cause(code="low_precision", evidence=text)
    text = f"{place_of(maker, op)}: numbers are drawn from 0 on, and one was exactly 0"
    return Cause(code="unbounded", evidence=text)


def _counted(maker: OpRecord, op: OpRecord) -> Cause | None:
    """A number of things, and there is none: a node without edges, an empty group, no such class."""
    if not maker.untouched and maker.name not in COUNTING:
        return None
    where = at(maker.outputs[0].index) if maker.outputs else ""
    text = f"{place_of(maker, op)}: nothing is counted there{where and f', {where.strip()}'}"
    return Cause(code="empty_mask", evidence=text)


def _added_up(evidence: Evidence, op: OpRecord, maker: OpRecord) -> Cause | None:
    """A sum of 0 whose terms are all 0."""
    part = (maker.inputs[0].slice_stats or maker.inputs[0].stats) if maker.inputs else None
    if maker.name not in SUMS or part is None or part.count < 2 or not part.min == part.max == 0:
        return None
    where = at(maker.outputs[0].index) if maker.outputs else ""
    text = (
        f"{place_of(maker, op)}: all {plural(part.count, 'value')} that are added up{where} are 0"
    )
    return Cause(code="constant_input", evidence=text + whose(evidence.around.sample))


def _less_one(evidence: Evidence, op: OpRecord, maker: OpRecord, before: Sequence[OpRecord]) -> Cause | None:  # fmt: skip
    """`1 - x`, of an x that is exactly 1: given so, rounded to it, or a power of exponent 0."""
    other, x = maker.scalar("other", "self"), maker.inputs[0] if maker.inputs else None
    if not other or x is None or x.value != other or len(maker.inputs) > 1:
        return None
    made = [m for m in before if m.name not in HANDED_ON]
    if not made:
        given = Operand(
            role=x.role, stats=None, value=x.value, source=x.source, upstream=tuple(before)
        )
        less = f", and {number(other)} less it is 0"
        return next(_came_in(evidence, given, other, less), None)
    first = made[0]
    if first.name == "pow" and _is_power_of_0(first):
        text = (
            f"{place_of(first, op)}: {_shown(first)} is 1, for its exponent is 0: it counts from 0"
        )
        return Cause(code="computed", evidence=text)
    first = next((m for m in made if m.name not in INVERTING or m.value != 1), first)
    return _absorbed(first, made[made.index(first) + 1 :], op) if other == 1 else None


def _absorbed(maker: OpRecord, before: Sequence[OpRecord], op: OpRecord) -> Cause | None:
    """`1 + exp(-z)`, of an exponential too small to be seen beside the 1."""
    one, x = maker.scalar("other"), maker.inputs[0].value if maker.inputs else None
    if maker.name != "add" or one != 1 or maker.value != 1 or x is None or len(maker.inputs) > 1:
        return None
    power = before[0].inputs[0].value if before and before[0].name == "exp" else None
    what = number(x) if power is None else f"`exp` of {number(power)}, {number(x)},"
    text = f"{place_of(maker, op)}: {what} added to 1 gives exactly 1"
    return Cause(code="saturation", evidence=text)


def _is_power_of_0(power: OpRecord) -> bool:
    """By its exponent; where that is another by now, no other power of a base as 0.9 is exactly 1."""
    given, base = power.operand("exponent"), power.scalar("self")
    exponent = given.value if given is not None else power.scalar("exponent")
    return exponent == 0 or (exponent is None and base is not None and 0.5 < base < 0.99999)


def _shown(maker: OpRecord) -> str:
    written = maker.site.expression if maker.site is not None else ""
    return f"`{written}`" if written and len(written) <= MAX_SHOWN else "it"


def _came_in(evidence: Evidence, given: Operand, value: float, then: str) -> Iterator[Cause]:
    """Of a value that nothing but the data can hold: the sample is known."""
    made, sample = given.upstream, evidence.around.sample
    first = made[-1].inputs[0].source if made and made[-1].inputs else given.source
    outside = first in (FROM_BEFORE, FROM_LOADER) or bool(made and made[-1].name == "lift_fresh")
    dtypes = [o.stats.dtype for m in made[-1:] for o in m.inputs if o.stats is not None]
    if outside and value == 0 and "float16" in dtypes:
        text = "0 came in with data in float16, where all below 3e-8 is 0"
        yield Cause(code="low_precision", evidence=text)
    elif outside and sample is not None and sample.bad < max(sample.size, 2):
        text = f"{number(value)} came in with the data{whose(sample)}{then}"
        yield Cause(code="bad_data", evidence=text)
