"""A finite result too large for its type.

What it catches
    Finite operands, infinite result: `exp`, a power, a product, a sum, a matrix product, a cast to
    a narrower type, also inside a backward formula or an optimizer's update.

Why it hurts
    The infinity turns into NaN at the next `inf - inf`, `inf / inf` or `0 * inf`, or it is
    absorbed into a wrong finite value: `x * rsqrt(inf)` is 0.

Example
    std = torch.exp(logvar)      # inf from logvar = 88.8 in float32, from 11.1 in float16

Use instead
    std = torch.exp(logvar.clamp(max=10))

When it is fine
    When the overflow is absorbed into the right value, as in `1 / (1 + exp(100))`.
"""

from __future__ import annotations

import math

from whynan.diagnosis.log_fixes import log_fixes
from whynan.diagnosis.makers import double_where, dropped_too_late, vanishing_divisor
from whynan.diagnosis.naming import call_of, short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import dtype_max, origin_label, spoken, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, dotted, number
from whynan.ops.table import forward_of, reading, row, that

COMPRESSING, GROWING, CASTS = that("compresses"), that("grows"), that("casts")
EXPONENTIALS = ("exp", "expm1")
LONG_PRODUCTS = that("multiplies") & (reading("prefix") | reading("reduction"))


@rule("N050", "overflow", "overflow", kinds=("operation", "absorbed"))
def overflow(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.value is None or any(_nonfinite(o) for o in op.inputs):
        return None
    if op.name in COMPRESSING and not op.derived:
        return None
    exact_is_finite = op.exact is not None and math.isfinite(op.exact)
    if math.isnan(op.value) and not (exact_is_finite and _can_exceed(op)):
        return None
    if op.derived and not exact_is_finite and (op.exact is not None or row(op.name).poles):
        return None  # infinite in any precision: the derivative itself is singular
    if op.exact is None and row(op.name).poles and any(map(_is_unknown, op.inputs)):
        return None  # what was overwritten since may have been a pole
    dtype = op.dtype
    small = vanishing_divisor(op)
    culprit = small or _largest(op)
    late = dropped_too_late(evidence)
    return Finding(
        headline=f"{subject(evidence)} because {_who(op)} overflowed {dtype}",
        observed=_observed(op, dtype, culprit),
        inferred=late or _inferred(op, evidence),
        label=origin_label(op),
        culprit=op.inputs.index(culprit) if culprit is not None else None,
        fixes=(double_where(short_call(op)),) if late else _what_helps(op, dtype, small),
    )


def _can_exceed(op: OpRecord) -> bool:
    """Whether products of its operands, added up, can pass the type's end: a NaN may have other reasons."""
    limit, stats = dtype_max(op.dtype), [o.stats for o in op.inputs]
    if limit is None or op.derived or op.name in GROWING or row(op.name).reads == "elementwise":
        return True
    known = [s for s in stats if s is not None and s.min is not None and s.max is not None]
    if len(known) < len(stats):
        return True
    most = max((max(abs(s.min or 0), abs(s.max or 0)) for s in known), default=math.inf)
    return most * most * max(s.count for s in known) > limit if known else True


def _what_helps(op: OpRecord, dtype: str, small: Operand | None) -> tuple[Fix, ...]:
    if small is None or op.phase == "optimizer":
        return _fixes(op, dtype)
    return _larger(op, dtype)


def _is_unknown(operand: Operand) -> bool:
    return operand.value is None and operand.stats is None


def _nonfinite(operand: Operand) -> bool:
    return operand.value is not None and not math.isfinite(operand.value)


def _who(op: OpRecord) -> str:
    if op.derived:
        return f"the gradient of `{short_call(op)}`"
    if op.name == "_to_copy":
        return "a cast"
    if _clips(op):
        return f"the norm that `{short_call(op)}` takes"
    return f"`{short_call(op)}`"


def _clips(op: OpRecord) -> bool:
    """The norm by which a library's function clips the gradients."""
    return "clip_grad_norm" in call_of(op) or "clip_grad_norm" in (op.inside or "")


def _largest(op: OpRecord) -> Operand | None:
    known = [o for o in op.inputs if o.value is not None and o.stats is not None]
    known = [o for o in known if o.stats is not None and "int" not in o.stats.dtype]
    return max(known, key=lambda o: abs(o.value or 0), default=None)


def _observed(op: OpRecord, dtype: str, culprit: Operand | None) -> tuple[str, ...]:
    facts = []
    limit = dtype_max(dtype)
    if op.exact is not None and math.isfinite(op.exact) and limit is not None:
        where = (
            f"the largest {dtype} is {limit:.5g}"
            if abs(op.exact) > limit
            else f"a sum or product on the way exceeded {limit:.5g}, the largest {dtype}"
        )
        facts.append(f"in float64 the result is {number(op.exact)}; {where}")
    values = [
        f"{spoken(op, o)} = {number(o.value)}"
        for o in op.inputs
        if o.value is not None and o.index is not None and o.slice_stats is None
    ]
    limit = limit if op.name in EXPONENTIALS and not op.derived else None
    if values:
        ends = (
            f", and overflows above {math.log(limit):.1f} in {dtype}" if limit is not None else ""
        )
        facts.append(f"it was given {', '.join(values[:3])}{ends}")
    if culprit is not None and culprit.slice_stats is not None:
        part = culprit.slice_stats
        what = "a gradient" if _clips(op) and not culprit.name else spoken(op, culprit)
        facts.append(f"it combines {dotted(part.shape)} values of {what} between {number(part.min)} and {number(part.max)}")  # fmt: skip
    return tuple(facts)


def _inferred(op: OpRecord, evidence: Evidence) -> tuple[str, ...]:
    hyper = evidence.hyper
    if op.phase == "optimizer" and hyper:
        shown = ", ".join(
            f"{k}={number(v) if isinstance(v, float) else v}" for k, v in hyper.items()
        )
        return (f"the update ran with {shown}",)
    return ()


def _fixes(op: OpRecord, dtype: str) -> tuple[Fix, ...]:
    if _clips(op):
        return (
            Fix(kind="clip_value", title="bound each gradient before its norm is taken, `torch.nn.utils.clip_grad_value_`: a norm that overflows scales all of them to 0"),
            Fix(kind="scale_down", title="make the gradients smaller where they grow: scale the data, bound what is exponentiated, lower the learning rate"),
        )  # fmt: skip
    if op.phase == "optimizer":
        return (
            Fix(kind="clip_gradients", title="clip the gradients before `step()`, with a norm that does not overflow itself"),
            Fix(kind="lower_lr", title="lower the learning rate"),
        )  # fmt: skip
    fixes = []
    if op.name in GROWING:
        fixes.append(Fix(kind="clamp_exponent", title="use a form that subtracts the maximum first (`log_softmax`, `logsumexp`, `softplus`), or keep the exponent small where it is made"))  # fmt: skip
    if op.name in LONG_PRODUCTS:
        fixes.append(Fix(kind="log_space", title="add logarithms instead of multiplying: `torch.log(x)` summed by `sum` or `cumsum`, and go on with the logarithm of the product"))  # fmt: skip
    if dtype == "float16" and op.name in CASTS and not op.derived:
        fixes.append(Fix(kind="wider_dtype", title="leave it in float32, or cast to bfloat16: the largest float16 is 65504"))  # fmt: skip
    elif dtype == "float16":
        fixes.append(Fix(kind="wider_dtype", title="compute this part in float32 or bfloat16"))
    if op.derived:
        fixes.append(Fix(kind="clip_gradients", title="scale the loss or the values down before this operation; clipping after the overflow is too late"))  # fmt: skip
    if not fixes:
        fixes.append(Fix(kind="scale_down", title="make the operands smaller: normalise the input, use smaller initial weights, or lower the learning rate"))  # fmt: skip
    return tuple(fixes)


def _larger(op: OpRecord, dtype: str) -> tuple[Fix, ...]:
    """The divisor is too small: scaling anything down would make it worse."""
    fixes = list[Fix]()
    divisor = vanishing_divisor(op)
    if "log_nonpositive" in row(forward_of(op.node)).fails and divisor is not None:
        fixes += log_fixes(divisor)
        if fixes[0].kind == "clamp_argument":
            fixes.insert(0, Fix(kind="log_space", title="compute the logarithm without the small number: add logarithms instead of multiplying, with `logsumexp` for sums"))  # fmt: skip
    else:
        fixes.append(Fix(kind="clamp_denominator", title="keep the divisor from becoming that small: `.clamp(min=1e-6)`, or as much as makes sense for it"))  # fmt: skip
    if dtype == "float16":
        fixes.append(Fix(kind="wider_dtype", title="compute this part in float32 or bfloat16"))
    return tuple(fixes)
