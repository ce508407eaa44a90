"""Lengths, directions and angles of vectors of any scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.precision import widen, widen_pair

Dims = int | tuple[int, ...] | None


def safe_norm(x: Tensor, dim: Dims = -1, *, keepdim: bool = False) -> Tensor:
    """The 2-norm without overflow or underflow of the squares; gradient 0 at 0."""
    dtype, x = widen(x)
    unit, scale = _scaled(x, dim)
    norm = torch.linalg.vector_norm(unit, dim=dim, keepdim=True) * scale
    return _reduced(norm, x, dim, keepdim).to(dtype)


def normalize(x: Tensor, dim: Dims = -1) -> Tensor:
    """x / |x| at any scale; the zero vector stays 0, with gradient 0."""
    dtype, x = widen(x)
    return _direction(x, dim).to(dtype)


def cosine_similarity(u: Tensor, v: Tensor, dim: int = -1) -> Tensor:
    """Cosine of the angle, never beyond ±1; 0 with gradient 0 for a zero vector."""
    dtype, u, v = widen_pair(u, v)
    u, v = _scaled(u, dim)[0], _scaled(v, dim)[0]
    cosine = (u * v).sum(dim, keepdim=True) / _length(u, dim) / _length(v, dim)
    return cosine.clamp(-1.0, 1.0).squeeze(dim).to(dtype)


def angle_between(u: Tensor, v: Tensor, dim: int = -1) -> Tensor:
    """The angle in radians, exact also near 0 and pi (Kahan); gradient 0 where it is 0.

    With a zero vector the angle is pi/2; between two of them it is 0.
    """
    dtype, u, v = widen_pair(u, v)
    u, v = _direction(u, dim), _direction(v, dim)
    apart = torch.linalg.vector_norm(u - v, dim=dim)
    along = torch.linalg.vector_norm(u + v, dim=dim)
    return (2 * torch.atan2(apart, along)).to(dtype)


def clip_norm(x: Tensor, max_norm: float, dim: Dims = None) -> Tensor:
    """x, shortened to `max_norm` where it is longer, also when the norm itself overflows."""
    dtype, x = widen(x)
    unit, scale = _scaled(x, dim)
    norm = torch.linalg.vector_norm(unit, dim=dim, keepdim=True)
    long = norm * scale > max_norm
    return torch.where(long, unit * (max_norm / torch.where(long, norm, 1.0)), x).to(dtype)


def _direction(x: Tensor, dim: Dims) -> Tensor:
    unit, _ = _scaled(x, dim)
    return unit / _length(unit, dim)


def _length(unit: Tensor, dim: Dims) -> Tensor:
    """To divide by: infinite for the zero vector, so that quotient and gradient are 0."""
    norm = torch.linalg.vector_norm(unit, dim=dim, keepdim=True)
    return torch.where(norm == 0, math.inf, norm)


def _scaled(x: Tensor, dim: Dims) -> tuple[Tensor, Tensor]:
    """x with its largest magnitude brought to 1, and that magnitude, free of gradient."""
    if x.numel() == 0:
        return x, x.new_ones(())
    over = dim if dim is not None else tuple(range(x.dim()))
    fixed = x.detach()
    scale = torch.maximum(fixed.amax(over, keepdim=True), -fixed.amin(over, keepdim=True))
    scale = torch.where((scale == 0) | torch.isinf(scale), 1.0, scale)
    return x / scale, scale


def _reduced(norm: Tensor, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if keepdim:
        return norm
    return norm.squeeze(dim) if dim is not None else norm.reshape(())
