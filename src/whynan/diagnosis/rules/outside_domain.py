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
from whynan.diagnosis.words import called, origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, number

DOMAINS = {
    "acos": "[-1, 1]", "asin": "[-1, 1]", "atanh": "(-1, 1)", "erfinv": "(-1, 1)",
    "acosh": "[1, inf)", "special_erfinv": "(-1, 1)", "special_ndtri": "(0, 1)", "logit": "(0, 1)",
    "lgamma": "numbers other than 0, -1, -2, ...", "digamma": "numbers other than 0, -1, -2, ...",
    "polygamma": "numbers other than 0, -1, -2, ...", "mvlgamma": "large enough numbers",
}  # fmt: skip
POWERS = ("pow", "float_power")


@rule(
    "N014", "outside-domain", "invalid_domain", ops=(*DOMAINS, *POWERS, "multinomial"),
    kinds=("operation", "raised"),
)  # fmt: skip
def outside_domain(op: OpRecord, evidence: Evidence) -> Finding | None:
    x = op.operand("self")
    if op.derived or x is None:
        return None
    if op.name == "multinomial":
        return _negative_probability(op, evidence)
    if x.value is None or (op.name in POWERS and not x.value < 0):
        return None
    if op.name in POWERS and op.value is not None and op.value == op.value:
        return None  # a negative base with a whole exponent: an overflow
    if op.name in DOMAINS and not _outside(op.name, x.value):
        return None
    domain = DOMAINS.get(op.name, "numbers from 0 up, for a fractional exponent")
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` is not defined at {called(x, 'a value')} = {_beyond(op.name, x.value)}",
        observed=(
            f"the value is {x.value:.9g}; the function is finite on {domain}",
            f"{called(x)}: {x.stats}",
        ),
        label=origin_label(op),
        culprit=op.inputs.index(x),
        fixes=(Fix(kind="clamp_argument", title=_help(op.name)),),
    )


def _help(name: str) -> str:
    if name in POWERS:
        return "keep the base of a fractional power above 0: `.clamp(min=1e-6)` before it"
    if name == "acosh":
        return "keep the argument at 1 or more, by about 1e-6 in float32 for the gradient's sake"
    if "gamma" in name:
        return "keep the argument above 0: `.clamp(min=eps)`, or `softplus` of what a model gives"
    return "clamp the argument inside the open interval, by about 1e-6 in float32"


def _beyond(name: str, x: float) -> str:
    """With as many digits as show that it is outside."""
    if name not in DOMAINS or _outside(name, float(number(x))):
        return number(x)
    digits = (f"{x:.{n}g}" for n in range(5, 18))
    return next((text for text in digits if _outside(name, float(text))), number(x))


def _outside(name: str, x: float) -> bool:
    if name in ("acos", "asin"):
        return abs(x) > 1
    if name in ("atanh", "erfinv", "special_erfinv"):
        return abs(x) >= 1
    if name == "acosh":
        return x < 1
    if name in ("logit", "special_ndtri"):
        return x <= 0 or x >= 1
    return x <= 0


def _negative_probability(op: OpRecord, evidence: Evidence) -> Finding:
    x = op.inputs[0]
    return Finding(
        headline=f"{subject(evidence)} because `multinomial` was given probabilities it cannot sample from",
        observed=(f"{called(x)}: {x.stats}", f"{x.stats.negatives if x.stats else 0} of them negative"),
        label="origin: refused here",
        culprit=0,
        fixes=(Fix(kind="clamp_argument", title="sample from a softmax of logits, or clamp the weights at 0"),),
    )  # fmt: skip
