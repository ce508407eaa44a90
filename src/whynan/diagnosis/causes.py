"""Why the operands were like that, as far as the recorded values show it."""

from __future__ import annotations

from collections.abc import Iterator

from whynan.diagnosis.words import plural
from whynan.model import Cause, Operand, OpRecord, number

# Functions whose result rounds to exactly 0 although no input is.
UNDERFLOWING = frozenset(
    {"exp", "_softmax", "sigmoid", "mul", "pow", "square", "prod", "cumprod", "exp2"}
)
COMPARISONS = frozenset({"gt", "lt", "ge", "le", "eq", "ne", "logical_and", "logical_not"})
NEAR = 3
HALF = frozenset({"float16", "bfloat16"})


def causes_of(op: OpRecord, culprit: Operand | None) -> tuple[Cause, ...]:
    """The causes whose evidence is in the recording, most telling first."""
    found = list(_from_operand(culprit)) if culprit is not None else []
    found += _from_precision(op)
    return tuple(found)


def _from_operand(culprit: Operand) -> Iterator[Cause]:
    if not culprit.upstream:
        return
    for distance, maker in enumerate(culprit.upstream):
        if distance >= NEAR and maker.value != 0:
            return  # far back, only a trail of zeros explains a zero
        if maker.name == "sub" and maker.value == 0 and _equal_operands(maker):
            yield Cause(
                code="cancellation", evidence=f"{_place(maker)}: two equal values were subtracted"
            )
            return
        eps = maker.scalar("other", "value") if maker.name == "add" else None
        if eps and maker.value == 0:
            text = f"{_place(maker)}: adding {number(eps)} in {maker.dtype} gives 0"
            yield Cause(code="eps_too_small", evidence=text)
            return
        if maker.value == 0 and maker.name in UNDERFLOWING and _nonzero_operands(maker):
            yield Cause(code="underflow", evidence=_underflow(maker))
            return
        if maker.value == 0 and maker.name == "sum" and _counts_a_mask(maker, culprit):
            stats = maker.inputs[0].slice_stats or maker.inputs[0].stats
            n = stats.count if stats is not None else 0
            text = f"{_place(maker)}: the mask selects none of {plural(n, 'entry', 'entries')}"
            yield Cause(code="empty_mask", evidence=text)
            return


def _from_precision(op: OpRecord) -> Iterator[Cause]:
    dtype = op.dtype
    if dtype in HALF and op.exact is not None and op.exact - op.exact == 0:
        yield Cause(
            code="low_precision",
            evidence=f"in float64 the same operands give {number(op.exact)}; {dtype} cannot hold it",
        )


def _underflow(maker: OpRecord) -> str:
    reason = next(o for o in maker.inputs if o.value is not None)
    text = f"{_place(maker)}: `{maker.name.strip('_')}` of {number(reason.value)} rounded to 0"
    if maker.name == "_softmax" and reason.slice_stats is not None:
        text += f"; the largest value beside it is {number(reason.slice_stats.max)}"
    return text


def _place(op: OpRecord) -> str:
    return f"line {op.site.line}" if op.site else "upstream"


def _equal_operands(op: OpRecord) -> bool:
    values = [o.value for o in op.inputs if o.value is not None]
    return len(values) == 2 and values[0] == values[1]


def _nonzero_operands(op: OpRecord) -> bool:
    values = [o.value for o in op.inputs if o.value is not None]
    # exp and softmax underflow from a finite exponent; a product only from non-zero factors.
    if op.name in ("exp", "exp2", "_softmax", "sigmoid"):
        return bool(values) and all(v - v == 0 for v in values)
    return bool(values) and all(v not in (0, None) for v in values)


def _counts_a_mask(total: OpRecord, culprit: Operand) -> bool:
    """A sum of booleans, or of what was made from booleans or a comparison."""
    stats = (total.inputs[0].slice_stats or total.inputs[0].stats) if total.inputs else None
    if stats is None:
        return False
    if stats.dtype == "bool" or "int" in stats.dtype:
        return True
    before = culprit.upstream[culprit.upstream.index(total) + 1 :][:1]
    return any(m.name in COMPARISONS or _casts_a_mask(m) for m in before)


def _casts_a_mask(op: OpRecord) -> bool:
    dtypes = [o.stats.dtype for o in op.inputs if o.stats is not None]
    return op.name == "_to_copy" and any(d == "bool" or "int" in d for d in dtypes)
