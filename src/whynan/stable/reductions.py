"""Means and spreads over a mask, over few values, over constant values."""

from __future__ import annotations

import torch
from torch import Tensor

from whynan.stable.elementary import safe_sqrt
from whynan.stable.precision import power_of_two_for, together, widen
from whynan.stable.quick import above, quick

Dims = int | tuple[int, ...] | None


def masked_mean(
    x: Tensor, mask: Tensor, dim: Dims = None, *, keepdim: bool = False,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """The mean over the entries where `mask` is True; `fill` with gradient 0 for too few.

    `(x * mask).sum() / mask.sum()` is 0/0 for an empty mask and lets a hidden NaN through.
    """
    dtype, x = widen(x)
    kept, _, n = _kept(x, mask, dim)
    mean = kept.sum(dim, keepdim=True) / n.clamp(min=1)
    return _finished(mean, n < min_count, fill, dim, keepdim).to(dtype)


def masked_var(
    x: Tensor, mask: Tensor, dim: Dims = None, *, keepdim: bool = False,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """The population variance over the entries where `mask` is True, from two passes."""
    dtype, x = widen(x)
    kept, weight, n = _kept(x, mask, dim)
    var = _variance(kept, weight, n, dim)
    return _finished(var, n < min_count, fill, dim, keepdim).to(dtype)


def masked_std(
    x: Tensor, mask: Tensor, dim: Dims = None, *, keepdim: bool = False,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """The root of `masked_var`; gradient 0 where the values are constant."""
    dtype, x = widen(x)
    kept, weight, n = _kept(x, mask, dim)
    shrink = _shrink(kept, dim)
    root = safe_sqrt(_variance(kept * shrink, weight, n, dim)) / shrink
    return _finished(root, n < min_count, fill, dim, keepdim).to(dtype)


def std(
    x: Tensor, dim: Dims = None, *, keepdim: bool = False, eps: float = 0.0,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """sqrt(var + eps^2) with population variance: 0, not NaN, for one value or equal values.

    The values may be of any size; their squares alone would overflow from 1e19 on in float32.
    """
    dtype, x = widen(x)
    n = x.numel() if dim is None else _product(x, dim)
    if n < max(min_count, 1):
        always = torch.ones((), dtype=torch.bool, device=x.device)
        return torch.where(always, fill, torch.sum(x, dim, keepdim=keepdim)).to(dtype)
    spread = _std(x, dim, n)
    if eps != 0:
        spread = torch.hypot(spread, spread.new_full((), eps))
    return (spread if keepdim else _squeezed(spread, dim)).to(dtype)


def _std_plain(x: Tensor, dim: Dims, n: int) -> Tensor:
    shrink = _shrink(x, dim)
    return safe_sqrt(torch.var(x * shrink, dim, correction=0, keepdim=True)) / shrink


def _std_forward(x: Tensor, dim: Dims, n: int) -> tuple[Tensor, Tensor, Tensor]:
    shrink = _shrink(x, dim)
    unit = x * shrink
    var, mean = torch.var_mean(unit, dim, correction=0, keepdim=True)
    root = var.sqrt_()
    slope = torch.where(root == 0, 0.0, 1 / (n * root))
    return root / shrink, unit.sub_(mean), slope


_std = quick(_std_plain, _std_forward, lambda grad, apart, slope, wanted: (apart * (grad * slope),))


def _shrink(x: Tensor, dim: Dims) -> Tensor:
    """A power of two that brings the largest magnitude near 1: no digit of any value changes."""
    if x.numel() == 0:
        return x.new_ones(())
    x, over = x.detach(), dim if dim is not None else tuple(range(x.dim()))
    size = torch.maximum(x.amax(over, keepdim=True), -x.amin(over, keepdim=True))
    return power_of_two_for(size)


def _product(x: Tensor, dim: int | tuple[int, ...]) -> int:
    n = 1
    for d in (dim,) if isinstance(dim, int) else dim:
        n *= x.shape[d]
    return n


def _variance(kept: Tensor, weight: Tensor, n: Tensor, dim: Dims) -> Tensor:
    mean = kept.sum(dim, keepdim=True) / n.clamp(min=1)
    apart = above(kept - mean, weight, 0.5)
    return (apart * apart).sum(dim, keepdim=True) / n.clamp(min=1)


def _kept(x: Tensor, mask: Tensor, dim: Dims) -> tuple[Tensor, Tensor, Tensor]:
    """x with 0 for what is hidden, the mask as numbers, and how many are left."""
    if mask.dtype is not torch.bool:
        raise TypeError(f"mask must be boolean (True: keep), got {mask.dtype}")
    x, mask = together(x, mask)
    weight = mask.to(x.dtype)
    return above(x, weight, 0.5), weight, mask.sum(dim, keepdim=True)


def _finished(value: Tensor, few: Tensor, fill: float, dim: Dims, keepdim: bool) -> Tensor:
    value = torch.where(few, fill, value)
    return value if keepdim else _squeezed(value, dim)


def _squeezed(value: Tensor, dim: Dims) -> Tensor:
    return value.squeeze(dim) if dim is not None else value.reshape(())
