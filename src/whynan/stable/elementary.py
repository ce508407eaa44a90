"""Division, logarithm, roots, powers and angles with their singular points taken out."""

from __future__ import annotations

import torch
from torch import Tensor

from whynan.stable.precision import together, widen, widen_pair
from whynan.stable.quick import above, keep_above, quick, quick_slopes
from whynan.stable.slopes import with_slopes

# How far inside ±1 the arc functions stay. 1 - 1e-8 is 1 in float32, 1 - 1e-3 is 1 in bfloat16.
ARC_EPS = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


def safe_div(
    a: Tensor | float, b: Tensor | float, *, fill: float = 0.0, min_abs: float = 0.0
) -> Tensor:
    """a / b, and `fill` with gradient 0 where |b| <= `min_abs`.

    1 / 1e-40 is inf in float32: `min_abs` puts the border where it should be.
    """
    dtype, a, b = widen_pair(a, b)
    return _div(*together(a, b), fill, min_abs).to(dtype)


def _div_plain(a: Tensor, b: Tensor, fill: float, min_abs: float) -> Tensor:
    bad = b.abs() <= min_abs if min_abs else b == 0
    filled = torch.where(torch.isnan(a), a.detach(), fill)
    return torch.where(bad, filled, a / torch.where(bad, 1.0, b))


def _div_forward(
    a: Tensor, b: Tensor, fill: float, min_abs: float
) -> tuple[Tensor, Tensor, Tensor]:
    size = b.abs()
    ratio = keep_above(a / b, size, min_abs)
    value = ratio if fill == 0 else torch.where(size <= min_abs, fill, ratio)
    # Not the ratio times 1 / b, which would be 0 times inf for a tiny b.
    down = keep_above(torch.div(ratio, b).neg_(), size, min_abs)
    return value.add_(_nan_of(a)), keep_above(b.reciprocal(), size, min_abs), down


def _nan_of(x: Tensor) -> Tensor:
    """NaN where x is, else 0."""
    return x.detach().clamp(0.0, 0.0)


_div = quick_slopes(_div_plain, _div_forward)


def safe_log(x: Tensor, *, floor: float | None = None) -> Tensor:
    """log(max(x, floor)); below the floor the gradient is 0.

    The default floor is the smallest normal number of the type. Unlike `log(x + eps)`, values
    above the floor are not moved.
    """
    dtype, wide = widen(x)
    return _log(wide, torch.finfo(dtype).tiny if floor is None else floor).to(dtype)


def _log_forward(x: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    kept = x.clamp(min=floor)
    value = kept.log()
    # At the floor itself the slope is that of the logarithm.
    return value, keep_above(kept.reciprocal_(), x, floor * (1 - torch.finfo(x.dtype).eps))


_log = quick_slopes(lambda x, floor: torch.log(x.clamp(min=floor)), _log_forward)


def safe_sqrt(x: Tensor) -> Tensor:
    """sqrt(x), and 0 with gradient 0 where x <= 0."""
    dtype, x = widen(x)
    return _sqrt(x).to(dtype)


def _sqrt_slope(x: Tensor) -> tuple[Tensor]:
    out = x <= 0
    return (torch.where(out, 0.0, 0.5 * torch.rsqrt(torch.where(out, 1.0, x))),)


def _sqrt_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    root = x.clamp(min=0).sqrt_()
    return root, keep_above(root.reciprocal().mul_(0.5), x, 0.0)


_sqrt = quick_slopes(with_slopes(lambda x: x.clamp(min=0).sqrt_(), _sqrt_slope), _sqrt_forward)


def safe_pow(x: Tensor, exponent: Tensor | float) -> Tensor:
    """x ** exponent for any real exponent, and 0 with gradient 0 where x <= 0."""
    number = not isinstance(exponent, Tensor)
    dtype, x, exponent = widen_pair(x, exponent)
    x, full = together(x, exponent)
    return _pow(x, exponent if number else full).to(dtype)


def _pow_plain(x: Tensor, exponent: Tensor) -> Tensor:
    power = torch.pow(torch.nn.functional.threshold(x, 0.0, 1.0), exponent)
    # torch has 1 for NaN to the power of 0.
    return above(power, x, 0.0) + _nan_of(x)


def _pow_forward(x: Tensor, exponent: Tensor) -> tuple[Tensor, ...]:
    base = torch.nn.functional.threshold(x, 0.0, 1.0)
    value = keep_above(torch.pow(base, exponent), x, 0.0).add_(_nan_of(x))
    return value, value, x, base, exponent


def _pow_backward(
    grad: Tensor, value: Tensor, x: Tensor, base: Tensor, exponent: Tensor,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    def of_base() -> Tensor:
        # Not value / x, which is 0 or inf where the slope need not be.
        slope = torch.pow(base, exponent - 1).mul_(exponent)
        return keep_above(keep_above(slope, exponent.abs(), 0.0).mul_(grad), x, 0.0)

    def of_exponent() -> Tensor:
        return keep_above(torch.log(base).mul_(value).mul_(grad), x, 0.0)

    return of_base() if wanted[0] else None, of_exponent() if wanted[1] else None


_pow = quick(_pow_plain, _pow_forward, _pow_backward, compiled=False)


def safe_acos(x: Tensor, *, eps: float | None = None) -> Tensor:
    """acos of x clamped to ±(1 - eps), so that the slope is finite; 0 slope outside.

    The clamp moves angles within eps of 0 and pi: by at most 1.4e-3 rad in float32. For the
    angle between vectors, `angle_between` is exact.
    """
    dtype, x = widen(x)
    return _acos(_inside(x, dtype, eps)).to(dtype)


def _arc_slope(x: Tensor) -> Tensor:
    """torch's own divides by sqrt(1 - x*x), which has lost its digits near 1."""
    return torch.rsqrt((1 - x) * (1 + x))


_acos = with_slopes(lambda x: torch.acos(x), lambda x: (-_arc_slope(x),))
_asin = with_slopes(lambda x: torch.asin(x), lambda x: (_arc_slope(x),))


def safe_asin(x: Tensor, *, eps: float | None = None) -> Tensor:
    """asin of x clamped to ±(1 - eps), so that the slope is finite; 0 slope outside."""
    dtype, x = widen(x)
    return _asin(_inside(x, dtype, eps)).to(dtype)


def _inside(x: Tensor, dtype: torch.dtype, eps: float | None) -> Tensor:
    edge = 1 - (ARC_EPS[dtype] if eps is None else eps)
    return x.clamp(-edge, edge)


def safe_atan2(y: Tensor | float, x: Tensor | float) -> Tensor:
    """atan2(y, x) with a gradient that neither overflows nor vanishes; 0 at the origin.

    torch divides by x*x + y*y, which leaves float32 beyond 1e-19 and 1e19.
    """
    dtype, y, x = widen_pair(y, x)
    return _atan2(*together(y, x)).to(dtype)


def _atan2_slopes(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """x and -y over x*x + y*y, brought to a scale of 1 first."""
    limit = torch.finfo(x.dtype).max
    y, x = y.clamp(-limit, limit), x.clamp(-limit, limit)
    size = torch.maximum(y.abs(), x.abs())
    scale = torch.nn.functional.threshold(size, 0.0, 1.0)
    y, x = y / scale, x / scale
    # At least 1, unless both are 0.
    square = (x * x + y * y).clamp(min=1.0) * scale
    return x / square, -y / square


def _atan2_forward(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value, limit = torch.atan2(y, x), torch.finfo(x.dtype).max
    y, x = y.clamp(-limit, limit), x.clamp(-limit, limit)
    size = torch.maximum(y.abs(), x.abs())
    value = keep_above(value, size, 0.0)
    scale = torch.threshold_(size, 0.0, 1.0)
    y, x = y.div_(scale), x.div_(scale)
    square = (x * x).addcmul_(y, y).clamp_(min=1.0).mul_(scale)
    return value, x.div_(square), y.div_(square).neg_()


def _atan2_value(y: Tensor, x: Tensor) -> Tensor:
    """torch has ±pi for (0, -0.0)."""
    return above(torch.atan2(y, x), torch.maximum(y.abs(), x.abs()), 0.0)


_atan2 = quick_slopes(with_slopes(_atan2_value, _atan2_slopes), _atan2_forward)
