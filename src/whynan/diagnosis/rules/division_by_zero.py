"""Division by an exact zero.

What it catches
    A quotient whose divisor is exactly 0: `a / b`, `reciprocal`, `rsqrt`, a negative power,
    a remainder, or an optimizer's update with a zero denominator.

Why it hurts
    A non-zero number over 0 is an infinity and 0 over 0 is NaN. One such element is enough: the
    next sum or mean spreads it over the loss, and its gradient is non-finite as well.

Example
    mean = (x * mask).sum() / mask.sum()      # an empty mask gives 0 / 0

Use instead
    mean = (x * mask).sum() / mask.sum().clamp(min=1)

When it is fine
    When the result is replaced before it matters and no gradient flows through it. Under autograd
    make the divisor safe before dividing: `torch.where(b != 0, a / torch.where(b != 0, b, 1), 0)`.
"""

from __future__ import annotations

from whynan.diagnosis.makers import divisor_is, larger_eps
from whynan.diagnosis.naming import right_number, short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import at, called, of_values, origin_label, plural, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, number
from whynan.ops.table import row

POWERS = frozenset(row("pow").spellings)
ADD_EPS = Fix(
    kind="add_eps", title="add a small eps, such as 1e-8, to the divisor, if it cannot be negative"
)
GENERIC = (
    Fix(kind="clamp_denominator", title="keep the divisor away from 0, for a count with `.clamp(min=1)`, otherwise with `.clamp(min=1e-8)`"),
    ADD_EPS,
)  # fmt: skip
# By what the divisor is.
HELPS = {
    "count": (
        Fix(kind="clamp_denominator", title="the divisor counts things: keep it at 1 or more, `.clamp(min=1)`"),
        Fix(kind="guard_count", title="or leave the term out when nothing is counted"),
    ),
    "norm": (
        Fix(kind="normalize", title="the divisor is a norm, 0 where all of its values are: keep it above 0, `.clamp(min=1e-12)`, as `torch.nn.functional.normalize` does"),
    ),
    "eps of 0": (
        Fix(kind="larger_eps", title="the eps that is added is 0: give it a value above 0, such as 1e-6"),
    ),
    "mean square": (
        Fix(kind="add_eps", title="the divisor comes from a mean of squares, which is 0 where all are 0: add an eps such as 1e-6 to it"),
    ),
    "spread": (
        Fix(kind="add_eps", title="the divisor measures spread, which is 0 for equal values: add an eps such as 1e-6 to it"),
    ),
    "sum": (
        Fix(kind="clamp_denominator", title="the divisor is a sum: keep it away from 0 with `.clamp(min=1e-8)`, if no term can be negative"),
        ADD_EPS,
    ),
    "difference": (
        Fix(kind="safe_divisor", title="the divisor is a difference and may have either sign: `torch.where(d != 0, d, 1)`, then set the quotient"),
    ),
    "exponentials": (
        Fix(kind="log_space", title="the divisor is made of exponentials that rounded to 0: subtract the largest exponent first, as `softmax` does, or stay with logarithms, `torch.logsumexp` for sums and a difference for the quotient"),
    ),
    "range": (
        Fix(kind="clamp_denominator", title="the divisor is the range of the values, 0 when all are equal: keep it above 0, `.clamp(min=1e-6)`"),
    ),
    "number less one": (
        Fix(kind="clamp_denominator", title="the divisor is a count minus one, which is 0 for a single item: `.clamp(min=1)`"),
    ),
}  # fmt: skip


@rule("N010", "division-by-zero", "division_by_zero")
def division_by_zero(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.derived:
        return None
    if op.name.startswith("_fused"):
        return _fused_without_eps(op, evidence)
    if op.name == "_weight_norm_interface":
        return _zero_direction(op, evidence)
    role = row(op.name).of
    divisor = op.operand(role)
    value = divisor.value if divisor is not None else op.scalar(role)
    if value != 0 or (op.name in POWERS and (_exponent(op) or 0) >= 0):
        return None
    dividend = op.operand("self", "tensor1") if op.name in ("div", "addcdiv") else None
    if op.name == "addcdiv":
        dividend = op.operand("tensor1")
    over = f"{number(dividend.value)} " if dividend is not None else ""
    observed = []
    if divisor is not None and divisor.stats is not None and divisor.stats.count > 1:
        where = f" in {called(divisor, 'the divisor')}"
        zeros = of_values(divisor.stats.zeros, divisor.stats.count, where)
        observed.append(f"{zeros} exactly 0{_first(op, divisor)}")
    elif divisor is not None:
        observed.append(f"{called(divisor, 'the divisor')} is exactly 0")
    return Finding(
        headline=f"{subject(evidence)} because {_what(op, divisor, over)}",
        observed=tuple(observed),
        label=origin_label(op),
        culprit=op.inputs.index(divisor) if divisor is not None else None,
        fixes=_fixes(op, evidence, divisor),
    )


def _zero_direction(op: OpRecord, evidence: Evidence) -> Finding | None:
    """`weight_norm` is v * g / |v|."""
    v = op.operand("v")
    part = (v.slice_stats or v.stats) if v is not None else None
    if v is None or part is None or part.zeros != part.count:
        return None
    return Finding(
        headline=f"{subject(evidence)} because `weight_norm` divided by the norm of its direction, which is 0",
        observed=(f"all {plural(part.count, 'value')} of that direction {'is' if part.count == 1 else 'are'} 0",),
        label=origin_label(op),
        culprit=op.inputs.index(v),
        fixes=(Fix(kind="init_direction", title="give the layer a weight that is not 0 before `weight_norm` is put on it"),),
    )  # fmt: skip


def _fused_without_eps(op: OpRecord, evidence: Evidence) -> Finding | None:
    """A fused update divides by sqrt(v) + eps; with eps = 0 and v = 0 that is 0 / 0."""
    if op.scalar("eps") != 0 or op.value is None or op.value == op.value:
        return None
    return Finding(
        headline=f"{subject(evidence)} because the optimizer's update divided 0 by 0",
        observed=("eps is 0",),
        inferred=("the gradient was 0 there from the start, so both moments are 0",),
        label=origin_label(op),
        fixes=_fixes(op, evidence),
    )


def _first(op: OpRecord, divisor: Operand) -> str:
    """Where the first of several zeros is, if the element that is shown is that one."""
    shown, zeros = op.outputs[0], divisor.stats.zeros if divisor.stats is not None else 0
    if not divisor.index or shown.first not in (None, shown.index):
        return ""
    if divisor.stats is not None and zeros == divisor.stats.count:
        return ""
    return f", the first{at(divisor.index)}" if zeros > 1 else at(divisor.index)


def _exponent(op: OpRecord) -> float | None:
    exponent = op.operand("exponent")
    return exponent.value if exponent is not None else op.scalar("exponent")


def _what(op: OpRecord, divisor: Operand | None, over: str) -> str:
    if op.phase == "optimizer" and op.name == "addcdiv":
        return f"the optimizer's update divided {over}by 0"
    name = divisor.name if divisor is not None else right_number(op)
    by = f"`{name}`, which is 0" if name else "0"
    if op.name in POWERS:
        raised = f"`{name}`, which is 0," if name else "0"
        power = _exponent(op)
        return f"`{short_call(op)}` raised {raised} to {'a negative power' if power is None else f'the power {number(power)}'}"
    return f"`{short_call(op)}` divided {over}by {by}"


def _fixes(op: OpRecord, evidence: Evidence, divisor: Operand | None = None) -> tuple[Fix, ...]:
    if op.phase == "optimizer" and "eps" in evidence.hyper:
        return (
            Fix(kind="optimizer_eps", title="give the optimizer an eps that its type can hold, such as eps=1e-8 in float32 or 1e-4 in float16"),
        )  # fmt: skip
    if divisor is None:
        return _of_a_number(op)
    if divisor.stats is not None and divisor.stats.count == 1 and divisor.upstream[-1:] == divisor.upstream[:1]:  # fmt: skip
        made = next((m for m in divisor.upstream if m.name == "lift_fresh"), None)
        if made is not None:
            line = f", in line {made.site.line}" if made.site is not None else ""
            return (
                Fix(kind="end_above_0", title=f"{called(divisor, 'the divisor')} comes from a plain number{line}: let that end above 0, at a value that makes sense for it; a tiny bound here would blow the quotient up"),
            )  # fmt: skip
    kind = divisor_is(divisor)
    return larger_eps(divisor) if kind == "eps" else HELPS.get(kind, GENERIC)


def _of_a_number(op: OpRecord) -> tuple[Fix, ...]:
    """The program computed it in Python: a schedule, a length, a setting."""
    name = right_number(op) or "the number"
    shown = f"`max({name}, 1e-6)`" if name.isidentifier() else "`max(number, 1e-6)`"
    return (
        Fix(kind="bound_number", title=f"the divisor is a plain number: keep it above 0 where it is computed, {shown}, or at least 1 for a count"),
    )  # fmt: skip
