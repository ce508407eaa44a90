"""Logarithms and exponentials whose leading digits cancel in the naive form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.precision import widen, widen_pair
from whynan.stable.slopes import with_slope

LOG2 = math.log(2.0)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x <= 0: -inf at 0, 0 at -inf, NaN above 0.

    The slope at 0 is truly -inf. Two forms, switched at -log 2 (Mächler 2012).
    """
    dtype, x = widen(x)
    return _log1mexp(x).to(dtype)


def _log1mexp_value(x: Tensor) -> Tensor:
    upper, lower = torch.expm1(x).neg_().log_(), torch.exp(x).neg_().log1p_()
    return torch.where(x > -LOG2, upper, lower)


def _log1mexp_slope(x: Tensor) -> Tensor:
    # `0 - x` and not `-x`: the sign of the zero decides the sign of the infinite slope.
    return -1 / torch.expm1(0 - x)


_log1mexp = with_slope(_log1mexp_value, _log1mexp_slope)


def logsubexp(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) - exp(b)) for a >= b: -inf where they are equal, both -inf included."""
    dtype, a, b = widen_pair(a, b)
    nothing = (a == -math.inf) & (b == -math.inf)
    a = torch.where(nothing, 0.0, a)
    gap = torch.where(nothing, -1.0, b) - a
    return torch.where(nothing, -math.inf, a + _log1mexp(gap)).to(dtype)


def log_cosh(x: Tensor) -> Tensor:
    """log(cosh(x)), exact near 0 and without overflow; the slope is tanh(x)."""
    dtype, x = widen(x)
    return _log_cosh(x).to(dtype)


def _log_cosh_value(x: Tensor) -> Tensor:
    size = x.abs()
    # cosh x - 1 = expm1(-x)^2 exp(x) / 2, all of whose factors are exact near 0.
    fall = torch.expm1(-size)
    near = (fall * fall / (2 + 2 * fall)).log1p_()
    rise = fall + 1
    far = (rise * rise).log1p_().add_(size).sub_(LOG2)
    return torch.where(size < 0.5, near, far)


_log_cosh = with_slope(_log_cosh_value, torch.tanh)


def tanh_log_det(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), the correction of a tanh-squashed policy; the slope is -2 tanh(x)."""
    return -2 * log_cosh(x)


def softplus_inv(y: Tensor) -> Tensor:
    """The x whose softplus is y > 0, log(exp(y) - 1): -inf at 0, NaN below."""
    dtype, y = widen(y)
    return _softplus_inv(y).to(dtype)


def _softplus_inv_value(y: Tensor) -> Tensor:
    # Beyond 40, exp(-y) is below the last digit of y in every type.
    return torch.where(y > 40.0, y, torch.expm1(y).log_())


def _softplus_inv_slope(y: Tensor) -> Tensor:
    return -1 / torch.expm1(-y)


_softplus_inv = with_slope(_softplus_inv_value, _softplus_inv_slope)


def expm1_minus(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, the term of the "k3" estimate of a KL divergence; never negative."""
    dtype, x = widen(x)
    return _expm1_minus(x).to(dtype)


def expm1_minus_value(x: Tensor) -> Tensor:
    # The clamp is for x = inf alone: inf - inf. Beyond 1e4 every type has overflowed.
    far = torch.expm1(x).sub_(x.clamp(max=1e4))
    return torch.where(x.abs() < 0.5, _series(x), far)


def _series(x: Tensor) -> Tensor:
    """x^2/2 + x^3/6 + ..., for |x| < 1/2, to the last digit of the type."""
    terms = 15 if x.dtype == torch.float64 else 9
    total = x / terms + 1
    for k in range(terms - 1, 2, -1):
        total.mul_(x).mul_(1 / k).add_(1)
    return total.mul_(x).mul_(x).mul_(0.5)


_expm1_minus = with_slope(expm1_minus_value, torch.expm1)
