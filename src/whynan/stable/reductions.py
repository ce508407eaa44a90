"""Means and spreads over a mask, over few values, over constant values."""

from __future__ import annotations

import torch
from torch import Tensor

from whynan.stable.elementary import safe_sqrt
from whynan.stable.precision import together, widen
from whynan.stable.quick import above

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
    var, n = _variance(x, mask, dim)
    return _finished(var, n < min_count, fill, dim, keepdim).to(dtype)


def masked_std(
    x: Tensor, mask: Tensor, dim: Dims = None, *, keepdim: bool = False,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """The root of `masked_var`; gradient 0 where the values are constant."""
    dtype, x = widen(x)
    var, n = _variance(x, mask, dim)
    return _finished(safe_sqrt(var), n < min_count, fill, dim, keepdim).to(dtype)


def std(
    x: Tensor, dim: Dims = None, *, keepdim: bool = False, eps: float = 0.0,
    min_count: int = 1, fill: float = 0.0,
) -> Tensor:  # fmt: skip
    """sqrt(var + eps^2) with population variance: 0, not NaN, for one value or equal values."""
    dtype, x = widen(x)
    n = x.numel() if dim is None else _product(x, dim)
    if n < max(min_count, 1):
        always = torch.ones((), dtype=torch.bool, device=x.device)
        return torch.where(always, fill, torch.sum(x, dim, keepdim=keepdim)).to(dtype)
    var = torch.var(x, dim, correction=0, keepdim=keepdim)
    return (safe_sqrt(var) if eps == 0 else torch.sqrt(var + eps * eps)).to(dtype)


def _product(x: Tensor, dim: int | tuple[int, ...]) -> int:
    n = 1
    for d in (dim,) if isinstance(dim, int) else dim:
        n *= x.shape[d]
    return n


def _variance(x: Tensor, mask: Tensor, dim: Dims) -> tuple[Tensor, Tensor]:
    kept, weight, n = _kept(x, mask, dim)
    mean = kept.sum(dim, keepdim=True) / n.clamp(min=1)
    apart = above(kept - mean, weight, 0.5)
    return (apart * apart).sum(dim, keepdim=True) / n.clamp(min=1), n


def _kept(x: Tensor, mask: Tensor, dim: Dims) -> tuple[Tensor, Tensor, Tensor]:
    """x with 0 for what is hidden, the mask as numbers, and how many are left."""
    if mask.dtype is not torch.bool:
        raise TypeError(f"mask must be boolean (True: keep), got {mask.dtype}")
    x, mask = together(x, mask)
    weight = mask.to(x.dtype)
    return above(x, weight, 0.5), weight, mask.sum(dim, keepdim=True)


def _finished(value: Tensor, few: Tensor, fill: float, dim: Dims, keepdim: bool) -> Tensor:
    value = torch.where(few, fill, value)
    if keepdim:
        return value
    return value.squeeze(dim) if dim is not None else value.reshape(())
