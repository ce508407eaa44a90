"""Division, logarithm, roots, powers and angles with their singular points taken out."""

from __future__ import annotations

import torch
from torch import Tensor

from whynan.stable.precision import widen, widen_pair
from whynan.stable.slopes import with_slope

# How far inside ±1 the arc functions stay. 1 - 1e-8 is 1 in float32, 1 - 1e-3 is 1 in bfloat16.
ARC_EPS = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 4e-3}


def safe_div(
    a: Tensor | float, b: Tensor | float, *, fill: float = 0.0, min_abs: float = 0.0
) -> Tensor:
    """a / b, and `fill` with gradient 0 where |b| <= `min_abs`.

    1 / 1e-40 is inf in float32: `min_abs` puts the border where it should be.
    """
    dtype, a, b = widen_pair(a, b)
    bad = b.abs() <= min_abs if min_abs else b == 0
    return torch.where(bad, fill, a / torch.where(bad, 1.0, b)).to(dtype)


def safe_log(x: Tensor, *, floor: float | None = None) -> Tensor:
    """log(max(x, floor)); below the floor the gradient is 0.

    The default floor is the smallest normal number of the type. Unlike `log(x + eps)`, values
    above the floor are not moved.
    """
    dtype, wide = widen(x)
    return torch.log(wide.clamp(min=torch.finfo(dtype).tiny if floor is None else floor)).to(dtype)


def safe_sqrt(x: Tensor) -> Tensor:
    """sqrt(x), and 0 with gradient 0 where x <= 0."""
    dtype, x = widen(x)
    return _sqrt(x).to(dtype)


def _sqrt_slope(x: Tensor) -> Tensor:
    # Arithmetic instead of `where`, which costs ten times as much on a CPU (torch 2.13).
    positive = x.sign().clamp(min=0)
    return 0.5 * torch.rsqrt(x.clamp(min=torch.finfo(x.dtype).tiny)) * positive


_sqrt = with_slope(lambda x: x.clamp(min=0).sqrt_(), _sqrt_slope)


def safe_pow(x: Tensor, exponent: Tensor | float) -> Tensor:
    """x ** exponent for any real exponent, and 0 with gradient 0 where x <= 0."""
    dtype, x, exponent = widen_pair(x, exponent)
    bad = x <= 0
    return torch.where(bad, 0.0, torch.pow(torch.where(bad, 1.0, x), exponent)).to(dtype)


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


_acos = with_slope(torch.acos, lambda x: -_arc_slope(x))
_asin = with_slope(torch.asin, _arc_slope)


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
    scale = torch.maximum(y.detach().abs(), x.detach().abs())
    scale = torch.where((scale == 0) | torch.isinf(scale), 1.0, scale)
    return torch.atan2(y / scale, x / scale).to(dtype)
