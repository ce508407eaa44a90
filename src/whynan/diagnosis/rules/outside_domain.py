"""A function outside its domain.

What it catches
    `acos` and `asin` beyond ±1, `atanh` and `erfinv` at or beyond ±1, `acosh` below 1, a negative
    base with a fractional power, the poles of `lgamma` and `digamma`, and probabilities that a
    sampler refuses because one is negative.

Why it hurts
    The result is NaN, or infinite at the edge of the domain.

Example
    angle = torch.acos((a * b).sum(-1))      # a dot product of unit vectors may be 1.0000001

Use instead
    angle = torch.acos((a * b).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6))

When it is fine
    Never by design; keep the argument inside the open interval, also for the gradient's sake.
"""

from __future__ import annotations

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import at, called, origin_label, subject
from whynan.model import REFUSED, Evidence, Finding, Fix, OpRecord, number
from whynan.ops.op import Domain
from whynan.ops.table import failing, row

MAKES = {"together": ", with `softmax`", "between 0 and 1": ", with `sigmoid`", "above 0": ", with `softplus` or `exp`"}  # fmt: skip
POWERS = frozenset(row("pow").spellings)


@rule(
    "N014", "outside-domain", "invalid_domain", kinds=("operation", "raised"),
    ops={*failing("invalid_domain"), REFUSED},
)  # fmt: skip
def outside_domain(op: OpRecord, evidence: Evidence) -> Finding | None:
    if op.op == REFUSED:
        return _refused(op, evidence)
    x = op.operand("self")
    if op.derived or x is None:
        return None
    if op.name == "multinomial":
        return _negative_probability(op, evidence)
    domain = row(op.name).domain
    if domain is None or x.value is None or x.value in domain:
        return None
    if op.name in POWERS and op.value is not None and op.value == op.value:
        return None  # a negative base with a whole exponent: an overflow
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` is not defined at {called(x, 'a value')} = {_beyond(domain, x.value)}",
        observed=(
            f"the value is {x.value:.9g}; the function is finite on {domain}",
            f"{called(x)}: {x.stats}",
        ),
        label=origin_label(op),
        culprit=op.inputs.index(x),
        fixes=(Fix(kind="clamp_argument", title=_help(op.name, domain)),),
    )


def _help(name: str, domain: Domain) -> str:
    if name in POWERS:
        return "keep the base of a fractional power above 0: `.clamp(min=1e-6)` before it"
    if len(domain.ends) == 2:
        return f"clamp the argument to {domain}, staying about 1e-6 away from its ends in float32"
    if domain.low == 0:
        return "keep the argument above 0: `.clamp(min=1e-6)`, or `softplus` of what a model gives"
    return (
        "keep the argument above 1, by about 1e-6 in float32: at 1 itself the gradient is infinite"
    )


def _beyond(domain: Domain, x: float) -> str:
    """With as many digits as show that it is outside."""
    digits = (number(x), *(f"{x:.{n}g}" for n in range(5, 18)))
    return next((text for text in digits if float(text) not in domain), number(x))


def _refused(op: OpRecord, evidence: Evidence) -> Finding:
    """By a distribution, which says itself what it needs."""
    x, needs, given = op.inputs[0], op.scalars.get("needs"), op.scalars.get("given")
    what = called(x, f"a {x.role}")
    facts = [f"{what} is {x.value:.9g}{at(x.index)}; it must be {needs}"]
    facts += [f"{what} comes from {given}"] if given else []
    by = next((by for form, by in MAKES.items() if form in str(needs)), "")
    title = f"keep it {needs} where it is computed{by}"
    if x.value == 0 and x.upstream:
        title = "add a small number where it is computed: it was rounded to 0"
    if (x.source or "").startswith("parameter"):
        title = f"train what cannot leave: a parameter without bounds, of which `softplus` or `exp` makes the {x.role}"
        title += (
            "; in Pyro, `pyro.param(..., constraint=constraints.positive)`"
            if "pyro." in str(given)
            else ""
        )
    return Finding(
        headline=f"{subject(evidence)} because `{op.scalars.get('by')}` was given {what} = {number(x.value)}, which must be {needs}",
        observed=tuple(facts),
        label="refused here",
        culprit=0,
        fixes=(Fix(kind="bound_parameter", title=title),),
    )  # fmt: skip


def _negative_probability(op: OpRecord, evidence: Evidence) -> Finding:
    x = op.inputs[0]
    return Finding(
        headline=f"{subject(evidence)} because `multinomial` was given probabilities it cannot sample from",
        observed=(f"{called(x)}: {x.stats}", f"{x.stats.negatives if x.stats else 0} of them negative"),
        label="refused here",
        culprit=0,
        fixes=(Fix(kind="clamp_argument", title="sample from a softmax of logits, or clamp the weights at 0"),),
    )  # fmt: skip
