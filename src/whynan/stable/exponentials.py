"""Logarithms and exponentials whose leading digits cancel in the naive form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whynan.stable.precision import together, widen, widen_pair
from whynan.stable.quick import above, buffer, keep_above, keep_up_to, quick_slopes
from whynan.stable.slopes import with_slopes

# Beyond it, exp(-2|x|) is below the last digit of 1 in every type.
FLAT = 20.0


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x <= 0: -inf at 0, 0 at -inf, NaN above 0. The slope at 0 is -inf."""
    dtype, x = widen(x)
    return _log1mexp(x).to(dtype)


def _parts(x: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """exp(x), 1 - exp(x), and what rounding took from that. `out` may be x itself.

    The last is added to the logarithm of the second, so that one formula holds from 0 to -inf
    where two with a switch were usual (Mächler 2012).
    """
    rise, fall = _exps(x, out)
    # Not `-fall`: the sign of the zero decides the sign of the infinite slope.
    left = torch.sub(x.new_zeros(()), fall, out=buffer(fall))
    return rise, left, (1 - left).sub_(rise)


def _log1mexp_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    rise, left, lost = _parts(x)
    slope = rise.div_(left).neg_()
    return lost.add_(left.log_()), slope


def _log1mexp_slope(x: Tensor) -> tuple[Tensor]:
    # From the terms of the value, which the compiler then shares.
    rise, fall = _exps(x)
    return (-(rise / (0 - fall)),)


_log1mexp = quick_slopes(
    with_slopes(lambda x: _log1mexp_forward(x)[0], _log1mexp_slope),
    _log1mexp_forward,
)


def logsubexp(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) - exp(b)) for a >= b: -inf where they are equal, both -inf included."""
    dtype, a, b = widen_pair(a, b)
    return _logsubexp(*together(a, b)).to(dtype)


def _gap(a: Tensor, b: Tensor) -> Tensor:
    """b - a, and -inf, not NaN, where both are -inf."""
    floor = a.clamp(min=torch.finfo(a.dtype).min)
    return torch.sub(b, floor, out=None if floor.requires_grad else buffer(floor))


def _logsubexp_slopes(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    gap = _gap(a, b)
    rise, fall = _exps(gap)
    left = 0 - fall
    return above(1 / left, a, -math.inf), above(-(rise / left), a, -math.inf)


def _logsubexp_forward(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    gap = _gap(a, b)
    rise, left, lost = _parts(gap, buffer(gap))
    up = left.reciprocal()
    down = rise.div_(left).neg_()
    value = lost.add_(left.log_()).add_(a)
    return value, keep_above(up, a, -math.inf), keep_above(down, a, -math.inf)


_logsubexp = quick_slopes(
    with_slopes(lambda a, b: _logsubexp_forward(a, b)[0], _logsubexp_slopes),
    _logsubexp_forward,
)


def log_cosh(x: Tensor) -> Tensor:
    """log(cosh(x)), exact near 0 and without overflow; the slope is tanh(x)."""
    dtype, x = widen(x)
    return _log_cosh(x).to(dtype)


def _log_cosh_value(x: Tensor) -> Tensor:
    """log1p(2 sinh(x/2)^2), from FLAT on a straight line."""
    half = _half_sinh(x)
    return (half * half).mul_(2).log1p_().add_(_beyond_flat(x))


def _half_sinh(x: Tensor) -> Tensor:
    return x.clamp(-FLAT, FLAT).mul_(0.5).sinh_()


def _beyond_flat(x: Tensor, out: Tensor | None = None) -> Tensor:
    """How far |x| is beyond FLAT, else 0."""
    shrink = torch.ops.aten.softshrink
    beyond: Tensor = shrink(x, FLAT) if out is None else shrink.out(x, FLAT, out=out)
    return beyond.abs_()


def _log_cosh_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    half = _half_sinh(x)
    square = half * half
    # tanh x = 2 s sqrt(1 + s^2) / (1 + 2 s^2), a quarter of the time of `tanh`.
    slope = (square + 1).sqrt_().mul_(half).mul_(2)
    value = torch.mul(square, 2, out=half)  # in memory that is there: new pages take longer
    slope.div_(torch.add(value, 1, out=square))
    return value.log1p_().add_(_beyond_flat(x, out=square)), slope


_log_cosh = quick_slopes(
    with_slopes(_log_cosh_value, lambda x: (torch.tanh(x),)),
    _log_cosh_forward,
)


def tanh_log_det(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), the correction of a tanh-squashed policy; the slope is -2 tanh(x)."""
    return -2 * log_cosh(x)


def softplus_inv(y: Tensor) -> Tensor:
    """The x whose softplus is y > 0, log(exp(y) - 1): -inf at 0, NaN below."""
    dtype, y = widen(y)
    return _softplus_inv(y).to(dtype)


NEAR_ROOT = 1 / 16  # closer to log 2 than that, where the value is 0, a series in the distance
# Of log(2 exp(d) - 1) over d; float32 needs seven factors.
ROOT_SERIES = (
    2.0, -1.0, 1.0, -1.0833333333333333, 1.25, -1.5027777777777778, 1.8583333333333334,
    -2.3458829365079366, 3.008349867724868, -3.9061182760141095, 5.123034060846561,
    -6.775061181424029, 9.02247430906285, -12.086916160637019, 16.275218404285493,
)  # fmt: skip
# log 2 as a number of the type, and what that lacks.
LOG_2 = {
    torch.float32: (0.693147182464599609375, -1.904654299957768e-9),
    torch.float64: (0.693147180559945309417, 2.3190468138462996e-17),
}


def _from_root(y: Tensor) -> Tensor:
    """y - log 2, to the last digit also next to it."""
    high, low = LOG_2[y.dtype]
    return (y - high) - low


def _near_root(away: Tensor) -> Tensor:
    """log(exp(y) - 1) at y = log 2 + away."""
    factors = ROOT_SERIES if away.dtype == torch.float64 else ROOT_SERIES[:7]
    series = away * factors[-1] + factors[-2]
    for factor in factors[-3::-1]:
        series = series * away + factor
    return series * away


def _softplus_inv_value(y: Tensor) -> Tensor:
    away = _from_root(y)
    far = torch.log(0 - _expm1(-y)) + y
    return torch.where(away.abs() < NEAR_ROOT, _near_root(away), far)


def _softplus_inv_forward(y: Tensor) -> tuple[Tensor, Tensor]:
    negative = -y
    fall = _expm1(negative, buffer(negative))
    # Not `-fall`: as above, the slope at -0.0 is that at 0.0.
    left = torch.sub(y.new_zeros(()), fall, out=buffer(fall))
    value = torch.log(left).add_(y)
    if y.device.type == "cpu":  # few are, as a rule; elsewhere to count them takes a wait
        near = (value.abs() < 2 * NEAR_ROOT).flatten().nonzero()
        value.put_(near, _near_root(_from_root(y.take(near))))
    else:
        away = _from_root(y)
        value = torch.where(away.abs() < NEAR_ROOT, _near_root(away), value)
    return value, left.reciprocal_()


_softplus_inv = quick_slopes(
    with_slopes(_softplus_inv_value, lambda y: (1 / (0 - _expm1(-y)),)),
    _softplus_inv_forward,
)


def expm1_minus(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, the term of the "k3" estimate of a KL divergence; never negative."""
    dtype, x = widen(x)
    return _expm1_minus(x).to(dtype)


NEAR = 0.5  # closer to 0 than that, exp(x) - 1 and x have too many digits in common
SERIES = tuple(1 / math.factorial(k) for k in range(2, 17))
# Fitted at Chebyshev's points of ±NEAR: float32 needs two factors less.
FITTED = (
    0.5000000121607166707, 0.16666666801683435264, 0.041665791230006455393,
    0.0083332361335218625353, 0.0013982186046277751182, 0.00019944874441589590372,
)  # fmt: skip
NEAR_VALUE = 0.125  # exp(x) - 1 - x at -0.55 and at 0.46
# Factors of the powers of x^2 in 1/2 x - (1 - x / (exp(x) - 1)), over x^2; fitted up to 0.56.
BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -5.284190138687493e-10,
    1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15,
)  # fmt: skip
FITTED_BERNOULLI = (0.083333332545937933, -0.0013888436741166927, 0.000032683331031226797)


def _expm1_minus_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    slope, square = torch.expm1(x), x * x
    near = _half_quotient(x, square).mul_(slope)
    # The clamp is for x = inf alone: inf - inf. Beyond 1e4 every type has overflowed.
    most = torch.clamp(x, max=1e4, out=buffer(square))
    value = torch.sub(slope, most, out=buffer(most))
    near = keep_up_to(near, value, NEAR_VALUE)
    return keep_above(value, value, NEAR_VALUE).add_(near, alpha=0.5), slope


def _half_quotient(x: Tensor, square: Tensor) -> Tensor:
    """2 (exp(x) - 1 - x) / (exp(x) - 1) near 0: next to x, only even powers."""
    *others, before, last = BERNOULLI if x.dtype == torch.float64 else FITTED_BERNOULLI
    series = (square * last).add_(before)
    for factor in reversed(others):
        series = torch.addcmul(x.new_full((), factor), series, square, out=buffer(series))
    return torch.addcmul(x, series, square, value=-2, out=buffer(series))


def near_zero(x: Tensor) -> Tensor:
    """exp(x) - 1 - x for |x| <= NEAR."""
    return _polynomial(x).mul_(x).mul_(x)


def _polynomial(x: Tensor) -> Tensor:
    """That over the square of x, right to the last digit."""
    *others, before, last = SERIES if x.dtype == torch.float64 else FITTED
    # Not `addcmul` with two numbers: three times as long (torch 2.13).
    series = (x * last).add_(before)
    for factor in reversed(others):
        series = torch.addcmul(x.new_full((), factor), series, x, out=buffer(series))
    return series


def _expm1(x: Tensor, out: Tensor | None = None) -> Tensor:
    return _exps(x)[1] if torch.compiler.is_compiling() else torch.expm1(x, out=out)


def _exps(x: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """exp(x) and exp(x) - 1, the latter in `out` where that is given.

    Compiled for a CPU, `expm1` is exp(x) minus 1 and has no digits left near 0 (torch 2.13).
    """
    rise = torch.exp(x)
    if not torch.compiler.is_compiling():
        return rise, torch.expm1(x, out=out)
    return rise, torch.where(x.abs() < 0.25, x * _series(x, 1), rise - 1)


def _series(x: Tensor, first: int) -> Tensor:
    """1/first! + x/(first+1)! + ..., to the last digit: from 1 on for |x| < 0.25, from 2 for |x| < 1.

    In pairs, which do not wait for each other as the steps of Horner's rule do.
    """
    terms = {1: (6, 12), 2: (10, 18)}[first][x.dtype == torch.float64]
    parts = [
        1 / math.factorial(k) + x * (1 / math.factorial(k + 1))
        for k in range(first, first + terms, 2)
    ]
    while len(parts) > 1:
        x = x * x
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [a + x * b for a, b in pairs] + parts[len(parts) & ~1 :]
    return parts[0]


def _expm1_minus_value(x: Tensor) -> Tensor:
    if not torch.compiler.is_compiling():
        return _expm1_minus_forward(x)[0]
    # The clamp is for x = inf alone: inf - inf.
    far = torch.exp(x) - 1 - x.clamp(max=1e4)
    return torch.where(x.abs() < 1, x * x * _series(x, 2), far)


_expm1_minus = quick_slopes(
    with_slopes(_expm1_minus_value, lambda x: (_expm1(x),)),
    _expm1_minus_forward,
)
