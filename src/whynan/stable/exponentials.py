"""Logarithms and exponentials whose leading digits cancel in the naive form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.precision import widen, widen_pair

LOG2 = math.log(2.0)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x <= 0: -inf at 0, 0 at -inf, NaN above 0.

    The slope at 0 is truly -inf. Two forms, switched at -log 2 (Mächler 2012).
    """
    dtype, x = widen(x)
    near = x > -LOG2
    # `0 - expm1` and not `-expm1`: the sign of the zero decides the sign of the infinite slope.
    upper = torch.log(0 - torch.expm1(torch.where(near, x, -1.0)))
    lower = torch.log1p(-torch.exp(torch.where(near, -1.0, x)))
    return torch.where(near, upper, lower).to(dtype)


def logsubexp(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) - exp(b)) for a >= b: -inf where they are equal, both -inf included."""
    dtype, a, b = widen_pair(a, b)
    nothing = (a == -math.inf) & (b == -math.inf)
    a_, b_ = torch.where(nothing, 0.0, a), torch.where(nothing, -1.0, b)
    return torch.where(nothing, -math.inf, a_ + log1mexp(b_ - a_)).to(dtype)


def log_cosh(x: Tensor) -> Tensor:
    """log(cosh(x)), exact near 0 and without overflow; the slope is tanh(x)."""
    dtype, x = widen(x)
    size = x.abs()
    near = size < 0.5
    half = torch.sinh(torch.where(near, x, 0.0) * 0.5)
    far = size + torch.log1p(torch.exp(-2 * size)) - LOG2
    return torch.where(near, torch.log1p(2 * half * half), far).to(dtype)


def tanh_log_det(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), the correction of a tanh-squashed policy; the slope is -2 tanh(x)."""
    return -2 * log_cosh(x)


def softplus_inv(y: Tensor) -> Tensor:
    """The x whose softplus is y > 0, log(exp(y) - 1): -inf at 0, NaN below."""
    dtype, y = widen(y)
    far = y > 10.0
    near_value = torch.log(torch.expm1(torch.where(far, 1.0, y)))
    far_value = y + torch.log1p(-torch.exp(-torch.where(far, y, 10.0)))
    return torch.where(far, far_value, near_value).to(dtype)


def expm1_minus(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, the term of the "k3" estimate of a KL divergence; never negative."""
    dtype, x = widen(x)
    near = x.abs() < 0.5
    small = torch.where(near, x, 0.0)
    # The clamp is for x = inf alone: inf - inf. Beyond 1e4 every type has overflowed.
    return torch.where(near, _series(small), torch.expm1(x) - x.clamp(max=1e4)).to(dtype)


def _series(x: Tensor) -> Tensor:
    """x^2/2 + x^3/6 + ..., for |x| < 1/2, to the last digit of the type."""
    terms = 15 if x.dtype == torch.float64 else 9
    total = torch.ones_like(x)
    for k in range(terms, 2, -1):
        total = 1 + total * x / k
    return total * x * x / 2
