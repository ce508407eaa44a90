"""What stands for a logarithm whose operand was rounded to 0."""

from __future__ import annotations

from whynan.diagnosis.makers import larger_eps, lost_eps, masked_by, rounded_exponential
from whynan.model import Fix, Operand, OpRecord
from whynan.ops.table import reading

LOGSUMEXP = Fix(kind="logsumexp", title="stay with logarithms: `torch.logsumexp(exponent + log_weight, dim)` instead of the logarithm of a sum of exponentials; weights go in as their logarithms")  # fmt: skip
LOG_OF_EXP = Fix(kind="log_space", title="stay with logarithms: that of `exp(x)` is x, and factors go in as a sum of their logarithms; the product is too small for its type")  # fmt: skip
PRODUCTS = reading("product") | {"mul", "prod", "cumprod"}


def log_fixes(x: Operand) -> tuple[Fix, ...]:
    """What to use instead of the logarithm of such an operand, or around it."""
    maker = x.upstream[0].name if x.upstream else ""
    floor = Fix(
        kind="clamp_argument",
        title="keep the argument above 0, such as `.clamp(min=1e-12)` in float32",
    )
    if masked_by(x) is not None:
        name = x.name if x.name and x.name.isidentifier() else "p"
        return (Fix(kind="double_where", title=f"make the argument safe before the logarithm: `torch.where({name} > 0, {name}, 1).log()`"), floor)  # fmt: skip
    if any(map(lost_eps, x.upstream)):
        return larger_eps(x)
    if maker == "_softmax":
        return (Fix(kind="log_softmax", title="take the logarithm before the small values are rounded away: `log_softmax`"), floor)  # fmt: skip
    if maker == "sigmoid":
        return (Fix(kind="logsigmoid", title="use `F.logsigmoid` of the logits, or `binary_cross_entropy_with_logits`"), floor)  # fmt: skip
    if any(m.name in ("sigmoid", "_softmax") for m in x.upstream[:3]):
        return (Fix(kind="logits_form", title="compute the logarithm from the logits: `F.logsigmoid(-x)` for log(1 - sigmoid(x)), `log_softmax` for softmax"), floor)  # fmt: skip
    if any("det" in m.name for m in x.upstream[:2]):
        return (Fix(kind="slogdet", title="use `torch.linalg.slogdet`, whose logarithm does not underflow"),)  # fmt: skip
    exponential = rounded_exponential(x)
    if exponential is not None:
        return (LOGSUMEXP if exponential[1] else LOG_OF_EXP,)
    if any(map(_ran_down, x.upstream)):
        return (Fix(kind="log_space", title="add logarithms instead of multiplying, with `logsumexp` for sums: the product is too small for its type, and a clamp would only hide that"),)  # fmt: skip
    return (floor,)


def _ran_down(maker: OpRecord) -> bool:
    """A product that is 0 although no factor is."""
    numbers = [v for v in maker.scalars.values() if isinstance(v, int | float)]
    factors = [o.value for o in maker.inputs if o.value is not None]
    if maker.name == "mul" and 0 in numbers:
        return False
    return maker.name in PRODUCTS and maker.value == 0 and bool(factors) and all(factors)
