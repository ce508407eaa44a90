"""Logarithm of zero or of a negative number.

What it catches
    `log`, `log2`, `log10`, `log1p`, `logit` or `xlogy` of a value outside their domain, most often
    a probability that was rounded to exactly 0; `logdet` of a matrix with a negative determinant.

Why it hurts
    log(0) is -inf and log of a negative number is NaN. A cross entropy then becomes inf, and
    `0 * -inf` in a target-weighted sum becomes NaN.

Example
    loss = -(target * logits.softmax(-1).log()).sum(-1).mean()

Use instead
    loss = -(target * logits.log_softmax(-1)).sum(-1).mean()

When it is fine
    In log space, where -inf stands for an impossible event and a logsumexp absorbs it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from whynan.diagnosis.log_fixes import log_fixes
from whynan.diagnosis.makers import masked_by
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import at, called, origin_label, some_of, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, number
from whynan.ops.table import failing, row

LARGEST_LOG = 709.0  # of a float64
WHERE = frozenset({"where"})  # how `logdet` marks a negative determinant


LOGITS = Fix(kind="logits_form", title="use the logits from before the `sigmoid`: `logit` only undoes it, and keeps its rounding")  # fmt: skip


@rule("N012", "log-of-nonpositive", "log_nonpositive", ops=failing("log_nonpositive") | WHERE)
def log_of_nonpositive(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.derived:
        return None
    if row(op.name).name == "ctc_loss":
        return _impossible_target(op, evidence)
    if op.name == "where":
        return _negative_determinant(op, evidence)
    x = _smallest(op, op.operand(row(op.name).of))
    if x is None or x.value is None or not _outside(op, x.value):
        return None
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was given {_met(op, x)}",
        observed=_counts(op, x),
        inferred=_inferred(op, x),
        label=origin_label(op),
        culprit=next(i for i, o in enumerate(op.inputs) if o.role == x.role),
        fixes=_fixes(op, x),
    )


def _fixes(op: OpRecord, x: Operand) -> tuple[Fix, ...]:
    if row(op.name).name == "logit" and [m.name for m in x.upstream[:1]] == ["sigmoid"]:
        return (LOGITS,)
    domain = row(op.name).domain
    if domain is not None and x.value is not None and x.value < domain.low:
        title = f"the argument must be above {number(domain.low)}: see to that where it is computed, for example with `softplus` or `exp`; a clamp has no gradient below its bound"
        return (Fix(kind="positive_form", title=title), *log_fixes(x)[1:])
    return log_fixes(x)


def _smallest(op: OpRecord, x: Operand | None) -> Operand | None:
    """Which element it was is lost with a result that was overwritten: then the smallest one."""
    is_lost = bool(op.outputs) and op.outputs[0].index is None
    if x is None or not is_lost or x.stats is None or x.stats.min is None or x.stats.nan:
        return x
    return replace(x, value=x.stats.min, index=None)


def _impossible_target(op: OpRecord, evidence: Evidence) -> Finding | None:
    """ctc_loss is minus the logarithm of the probability of all alignments together."""
    if op.exact is not None and op.exact - op.exact == 0:
        return None
    return Finding(
        headline=f"{subject(evidence)} because `ctc_loss` was given a target that no alignment can produce",
        observed=(f"sample{at(op.outputs[0].index if op.outputs else None)} has probability 0 under the given lengths",),
        inferred=("the target, with a blank between repeated labels, is longer than its input",),
        label=origin_label(op),
        fixes=(
            Fix(kind="zero_infinity", title="pass `zero_infinity=True`, or drop targets longer than their input allows"),
        ),
    )  # fmt: skip


def _negative_determinant(op: OpRecord, evidence: Evidence) -> Finding | None:
    """`logdet` is that of `slogdet`, or NaN where the sign is -1."""
    sign = op.operand("condition")
    makers = sign.upstream[:2] if sign is not None else ()
    if sign is None or [m.name for m in makers] != ["eq", "_linalg_slogdet"]:
        return None
    slogdet = makers[1]
    if slogdet.value != -1:
        return None
    size = slogdet.outputs[1].value if len(slogdet.outputs) > 1 else None
    value = "negative" if size is None or size > LARGEST_LOG else number(-math.exp(size))
    which = f"the matrix{at(op.outputs[0].index if op.outputs else None)}"
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was given a matrix whose determinant is negative",
        observed=(f"the determinant of {which} is {value}",),
        inferred=("the logarithm of a negative determinant is not a real number: torch gives NaN",),
        label=origin_label(op),
        culprit=op.inputs.index(sign),
        fixes=(
            Fix(kind="slogdet", title="use `torch.linalg.slogdet(A)[1]`, the logarithm of the absolute value, if the sign does not matter"),
        ),
    )  # fmt: skip


def _outside(op: OpRecord, x: float) -> bool:
    domain = row(op.name).domain
    return x == float("-inf") if domain is None else x not in domain


def _met(op: OpRecord, x: Operand) -> str:
    maker = x.upstream[0].name if x.upstream else ""
    if op.name == "_log_softmax":
        return "a class whose probability is exactly 0, because its logit is -inf"
    masking = masked_by(x)
    if masking is not None:
        return f"a 0 that `{masking.name.strip('_')}` gave to a masked (-inf) entry"
    if x.value == 0 and maker in ("_softmax", "sigmoid", "exp"):
        return f"a value that `{maker.strip('_')}` had rounded to 0"
    return f"{called(x, 'a value')} = {number(x.value)}"


def _counts(op: OpRecord, x: Operand) -> tuple[str, ...]:
    if x.stats is None or not _begins_at_zero(op) or x.stats.count < 2:
        return (f"{called(x)} is {number(x.value)}",)
    facts = []
    if x.stats.zeros:
        facts.append(some_of(x, x.stats.zeros, "exactly 0"))
    if x.stats.negatives:
        facts.append(some_of(x, x.stats.negatives, "negative"))
    return tuple(facts)


def _begins_at_zero(op: OpRecord) -> bool:
    domain = row(op.name).domain
    return domain is not None and domain.ends == (0,)


def _inferred(op: OpRecord, x: Operand) -> tuple[str, ...]:
    maker = x.upstream[0] if x.upstream else None
    if maker is None or x.value != 0:
        return ()
    masking = masked_by(x)
    if masking is not None:
        either = "; `log_softmax` gives -inf as well" if "softmax" in masking.name else ""
        return (f"that 0 is exact, not rounded: a `where` after the logarithm would leave its gradient NaN{either}",)  # fmt: skip
    if maker.name == "_softmax" and maker.inputs:
        part = maker.inputs[0].slice_stats
        if part is not None and part.min is not None and part.max is not None:
            return (
                f"the logits of that row span {number(part.max - part.min)}; {part.dtype} softmax "
                f"rounds to 0 beyond a gap of about {'18' if part.dtype == 'float16' else '104'}",
            )
    return ()
