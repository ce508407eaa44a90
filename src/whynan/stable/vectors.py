"""Lengths, directions and angles of vectors of any scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.precision import together, widen, widen_pair
from whynan.stable.quick import quick

Dims = int | tuple[int, ...] | None


def safe_norm(x: Tensor, dim: Dims = -1, *, keepdim: bool = False) -> Tensor:
    """The 2-norm without overflow or underflow of the squares; gradient 0 at 0."""
    dtype, x = widen(x)
    return _reduced(_norm(x, dim), dim, keepdim).to(dtype)


def _norm_plain(x: Tensor, dim: Dims) -> Tensor:
    unit, shrink = _scaled(x, dim)
    return _norm_of(unit, dim) / shrink


def _norm_forward(x: Tensor, dim: Dims) -> tuple[Tensor, Tensor, Tensor]:
    unit, shrink = _scaled(x, dim)
    length = _norm_of(unit, dim)
    return length / shrink, unit, _inverse(length)


_norm = quick(
    _norm_plain, _norm_forward, lambda grad, unit, inverse, wanted: (unit * (grad * inverse),)
)


def normalize(x: Tensor, dim: Dims = -1) -> Tensor:
    """x / |x| at any scale; the zero vector stays 0, with gradient 0."""
    dtype, x = widen(x)
    return _normalize(x, dim).to(dtype)


def _normalize_forward(x: Tensor, dim: Dims) -> tuple[Tensor, Tensor, Tensor]:
    unit, shrink = _scaled(x, dim)
    inverse = _inverse(_norm_of(unit, dim))
    unit.mul_(inverse)
    return unit, unit, inverse * shrink


def _normalize_backward(
    grad: Tensor, unit: Tensor, inverse: Tensor, wanted: tuple[bool]
) -> tuple[Tensor]:
    along = (unit * grad).sum_to_size(inverse.shape)
    return ((grad * inverse).addcmul_(unit, along * inverse, value=-1),)


def cosine_similarity(u: Tensor, v: Tensor, dim: int = -1) -> Tensor:
    """Cosine of the angle, never beyond ±1; 0 with gradient 0 for a zero vector."""
    dtype, u, v = widen_pair(u, v)
    cosine = _cosine(*together(u, v), dim)
    return cosine.clamp(-1.0, 1.0).squeeze(dim).to(dtype)


def _cosine_plain(u: Tensor, v: Tensor, dim: int) -> Tensor:
    u, v = _scaled(u, dim)[0], _scaled(v, dim)[0]
    return (u * v).sum(dim, keepdim=True) / _length(u, dim) / _length(v, dim)


def _cosine_forward(u: Tensor, v: Tensor, dim: int) -> tuple[Tensor, ...]:
    (u, u_shrink), (v, v_shrink) = _scaled(u, dim), _scaled(v, dim)
    u_inverse, v_inverse = _inverse(_norm_of(u, dim)), _inverse(_norm_of(v, dim))
    cosine = (u * v).sum(dim, keepdim=True) * u_inverse * v_inverse
    return cosine, cosine, u, v, u_inverse, v_inverse, u_inverse * u_shrink, v_inverse * v_shrink


def _cosine_backward(
    grad: Tensor, cosine: Tensor, u: Tensor, v: Tensor, u_inverse: Tensor, v_inverse: Tensor,
    per_u: Tensor, per_v: Tensor, wanted: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Of the other direction, what stands at right angles to this one."""
    along_u, along_v = grad * u_inverse, grad * v_inverse
    return (
        (v * (along_v * per_u)).addcmul_(u, -cosine * along_u * per_u) if wanted[0] else None,
        (u * (along_u * per_v)).addcmul_(v, -cosine * along_v * per_v) if wanted[1] else None,
    )


_cosine = quick(_cosine_plain, _cosine_forward, _cosine_backward)


def angle_between(u: Tensor, v: Tensor, dim: int = -1) -> Tensor:
    """The angle in radians, exact also near 0 and pi (Kahan); gradient 0 where it is 0.

    With a zero vector the angle is pi/2; between two of them it is 0.
    """
    dtype, u, v = widen_pair(u, v)
    return _angle(*together(u, v), dim).squeeze(dim).to(dtype)


def _angle_plain(u: Tensor, v: Tensor, dim: int) -> Tensor:
    u, v = _direction(u, dim), _direction(v, dim)
    return 2 * torch.atan2(_norm_of(u - v, dim), _norm_of(u + v, dim))


def _angle_forward(u: Tensor, v: Tensor, dim: int) -> tuple[Tensor, ...]:
    (u, u_shrink), (v, v_shrink) = _scaled(u, dim), _scaled(v, dim)
    u_inverse, v_inverse = _inverse(_norm_of(u, dim)), _inverse(_norm_of(v, dim))
    u, v = u.mul_(u_inverse), v.mul_(v_inverse)
    apart, along = u - v, u.add_(v)
    sine, cosine = _norm_of(apart, dim), _norm_of(along, dim)
    flat = 0.5 * _inverse(sine) * cosine
    steep = 0.5 * _inverse(cosine) * sine
    angle = 2 * torch.atan2(sine, cosine)
    return angle, apart, along, flat, steep, u_inverse * u_shrink, v_inverse * v_shrink


def _angle_backward(
    grad: Tensor, apart: Tensor, along: Tensor, flat: Tensor, steep: Tensor,
    per_u: Tensor, per_v: Tensor, wanted: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Each direction turns away from the other: along u - v, and against u + v."""
    turn, shrink = grad * flat, grad * steep
    return (
        (apart * (turn * per_u)).addcmul_(along, -shrink * per_u) if wanted[0] else None,
        (apart * (-turn * per_v)).addcmul_(along, -shrink * per_v) if wanted[1] else None,
    )


_angle = quick(_angle_plain, _angle_forward, _angle_backward)


def clip_norm(x: Tensor, max_norm: float, dim: Dims = None) -> Tensor:
    """x, shortened to `max_norm` where it is longer, also when the norm itself overflows."""
    dtype, x = widen(x)
    return _clip(x, max_norm, dim).to(dtype)


def _clip_plain(x: Tensor, max_norm: float, dim: Dims) -> Tensor:
    unit, shrink = _scaled(x, dim)
    norm = _norm_of(unit, dim)
    long = norm / shrink > max_norm
    return torch.where(long, unit * (max_norm / torch.where(long, norm, 1.0)), x)


def _clip_forward(x: Tensor, max_norm: float, dim: Dims) -> tuple[Tensor, ...]:
    unit, shrink = _scaled(x, dim)
    norm = _norm_of(unit, dim)
    long = norm / shrink > max_norm
    # Times 1 where it is short: x itself, to the last digit.
    gain, shrink = torch.where(long, max_norm / norm, 1.0), torch.where(long, shrink, 1.0)
    torch.mul(x, shrink, out=unit)
    return unit * gain, unit, gain * shrink, torch.where(long, 1 / norm, 0.0)


def _clip_backward(
    grad: Tensor, unit: Tensor, gain: Tensor, inverse: Tensor, wanted: tuple[bool]
) -> tuple[Tensor]:
    along = (unit * grad).sum_to_size(gain.shape)
    along = torch.where(inverse == 0, 0.0, along * inverse * inverse * gain)
    return ((grad * gain).addcmul_(unit, along, value=-1),)


_clip = quick(_clip_plain, _clip_forward, _clip_backward)


def _norm_of(x: Tensor, dim: Dims) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return norm


def _inverse(length: Tensor) -> Tensor:
    """To multiply by: 0 for the zero vector, so that product and gradient are 0."""
    return torch.where(length == 0, 0.0, 1 / length)


def _direction(x: Tensor, dim: Dims) -> Tensor:
    unit, _ = _scaled(x, dim)
    return unit / _length(unit, dim)


_normalize = quick(_direction, _normalize_forward, _normalize_backward)


def _length(unit: Tensor, dim: Dims) -> Tensor:
    """To divide by: infinite for the zero vector, so that quotient and gradient are 0."""
    norm = _norm_of(unit, dim)
    return torch.where(norm == 0, math.inf, norm)


def _scaled(x: Tensor, dim: Dims) -> tuple[Tensor, Tensor]:
    """x with its largest magnitude brought to 1, and the factor that did it, free of gradient."""
    if x.numel() == 0:
        return x.clone(), x.new_ones(())
    over = dim if dim is not None else tuple(range(x.dim()))
    tiny = torch.finfo(x.dtype).tiny
    shrink = 1 / x.detach().abs().amax(over, keepdim=True).clamp(tiny, 1 / tiny)
    return x * shrink, shrink


def _reduced(norm: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    if keepdim:
        return norm
    return norm.squeeze(dim) if dim is not None else norm.reshape(())
