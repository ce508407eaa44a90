"""Values and gradients against 200-digit arithmetic, over the whole range, in every type."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import pytest
import torch
from torch import Tensor

from whynan import stable

mp.mp.dps = 200  # 1 - exp(-316) needs 138

TYPES = {
    torch.float64: 3e-15,
    torch.float32: 8e-7,
    torch.float16: 1.1e-3,
    torch.bfloat16: 8e-3,
}


@dataclass(frozen=True)
class Case:
    function: Callable[[Tensor], Tensor]
    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    grid: Tensor


def spread(low: float, high: float) -> Tensor:
    """40 points from 10**low to 10**high."""
    return torch.logspace(low, high, 40, dtype=torch.float64)


def both(points: Tensor) -> Tensor:
    return torch.cat([-points, points])


CASES = {
    "log1mexp": Case(
        stable.log1mexp,
        lambda x: mp.log(-mp.expm1(x)),
        lambda x: -1 / mp.expm1(-x),
        -spread(-7, 2.5),
    ),
    "log_cosh": Case(
        stable.log_cosh, lambda x: mp.log(mp.cosh(x)), mp.tanh, both(spread(-4, 3))
    ),
    "tanh_log_det": Case(
        stable.tanh_log_det,
        lambda x: -2 * mp.log(mp.cosh(x)),
        lambda x: -2 * mp.tanh(x),
        both(spread(-4, 3)),
    ),
    "softplus_inv": Case(
        stable.softplus_inv,
        lambda y: mp.log(mp.expm1(y)),
        lambda y: -1 / mp.expm1(-y),
        spread(-6, 2.5),
    ),
    "expm1_minus": Case(
        stable.expm1_minus,
        lambda x: mp.expm1(x) - x,
        mp.expm1,
        torch.cat([both(spread(-3, 0.9)), -spread(0.9, 3)]),
    ),
    "safe_log": Case(stable.safe_log, mp.log, lambda x: 1 / x, spread(-4, 4)),
    "safe_sqrt": Case(
        stable.safe_sqrt, mp.sqrt, lambda x: 1 / (2 * mp.sqrt(x)), spread(-4, 4)
    ),
    "safe_pow": Case(
        lambda x: stable.safe_pow(x, 0.3),
        lambda x: mp.power(x, mp.mpf(0.3)),
        lambda x: mp.mpf(0.3) * mp.power(x, mp.mpf(0.3) - 1),
        spread(-4, 4),
    ),
    "safe_acos": Case(
        stable.safe_acos,
        mp.acos,
        lambda x: -1 / mp.sqrt(1 - x * x),
        torch.cat([both(spread(-4, -0.1)), 1 - spread(-2, -0.1)]),
    ),
    "safe_asin": Case(
        stable.safe_asin,
        mp.asin,
        lambda x: 1 / mp.sqrt(1 - x * x),
        torch.cat([both(spread(-4, -0.1)), 1 - spread(-2, -0.1)]),
    ),
}  # fmt: skip


def largest_error(got: Tensor, wanted: list[Any], dtype: torch.dtype) -> float:
    """Relative to the exact value, or to the smallest normal number below that."""
    tiny = torch.finfo(dtype).tiny
    errors = []
    for ours, exact in zip(got.double().tolist(), wanted, strict=True):
        errors.append(abs(mp.mpf(ours) - exact) / max(abs(exact), tiny))
    return float(max(errors))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_value_and_gradient_agree_with_exact_arithmetic(case: Case, dtype: torch.dtype) -> None:
    x = case.grid.to(dtype).requires_grad_()
    y = case.function(x)
    assert y.dtype == dtype
    (slope,) = torch.autograd.grad(y.sum(), x)
    points = [mp.mpf(v) for v in x.detach().double().tolist()]
    limit = torch.finfo(dtype).max
    kept = [i for i, p in enumerate(points) if abs(case.value(p)) < limit and abs(case.slope(p)) < limit]  # fmt: skip
    assert len(kept) > 30
    assert largest_error(y[kept], [case.value(points[i]) for i in kept], dtype) < TYPES[dtype]
    assert largest_error(slope[kept], [case.slope(points[i]) for i in kept], dtype) < TYPES[dtype]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_logsubexp(dtype: torch.dtype) -> None:
    a = torch.tensor([0.0, 1.0, 50.0, 100.0, -80.0, 100.0]).to(dtype)
    b = torch.tensor([-0.5, 0.5, 49.0, 99.5, -90.0, -50.0]).to(dtype)
    wanted = [
        mp.mpf(p) + mp.log(-mp.expm1(mp.mpf(q) - mp.mpf(p)))
        for p, q in zip(a.double().tolist(), b.double().tolist(), strict=True)
    ]
    assert largest_error(stable.logsubexp(a, b), wanted, dtype) < TYPES[dtype]


SCALES = torch.logspace(-30, 30, 41, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_vectors_of_any_scale(dtype: torch.dtype) -> None:
    direction = torch.tensor([3.0, -4.0, 12.0], dtype=torch.float64)
    x = (SCALES[:, None] * direction).to(dtype).requires_grad_()
    norm = stable.safe_norm(x)
    (slope,) = torch.autograd.grad(norm.sum(), x)
    exact = torch.linalg.vector_norm(x.detach().double(), dim=-1)
    unit = x.detach().double() / exact[:, None]
    limit = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(norm.double(), exact, rtol=limit, atol=0.0)
    torch.testing.assert_close(slope.double(), unit, rtol=limit, atol=0.0)
    torch.testing.assert_close(stable.normalize(x).double(), unit, rtol=limit, atol=0.0)
    other = torch.tensor([1.0, 1.0, 1.0], dtype=dtype)
    cosine = stable.cosine_similarity(x, other.expand_as(x)).double()
    torch.testing.assert_close(cosine, (unit * 3**-0.5).sum(-1), rtol=1e-6, atol=0.0)


def test_small_angles_are_exact() -> None:
    angle = torch.logspace(-7, -1, 25, dtype=torch.float64)
    u = torch.tensor([1.0, 0.0]).expand(25, 2).clone().requires_grad_()
    v = torch.stack([angle.cos(), angle.sin()], -1).float()
    exact = torch.atan2(v[:, 1].double(), v[:, 0].double())
    got = stable.angle_between(u, v)
    torch.testing.assert_close(got.double(), exact, rtol=5e-7, atol=0.0)
    (slope,) = torch.autograd.grad(got.sum(), u)
    torch.testing.assert_close(slope[:, 1], -torch.ones(25), rtol=2e-3, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_atan2_at_any_scale(dtype: torch.dtype) -> None:
    scales = SCALES if dtype == torch.float32 else torch.logspace(-3, 4, 20, dtype=torch.float64)
    y, x = ((k * scales).to(dtype).requires_grad_() for k in (1.0, -2.0))
    angle = stable.safe_atan2(y, x)
    slope = torch.autograd.grad(angle.sum(), (y, x))
    y_, x_ = y.detach().double(), x.detach().double()
    square = x_ * x_ + y_ * y_
    limit = torch.finfo(dtype).eps * 4
    torch.testing.assert_close(angle.double(), torch.atan2(y_, x_), rtol=limit, atol=0.0)
    torch.testing.assert_close(
        slope[0].double(), x_ / square, rtol=limit, atol=1e-6 if dtype == torch.float16 else 0.0
    )
    torch.testing.assert_close(
        slope[1].double(), -y_ / square, rtol=limit, atol=1e-6 if dtype == torch.float16 else 0.0
    )


def exact_kl(p: Tensor, q: Tensor) -> Any:
    def normalised(x: Tensor) -> list[Any]:
        values = [mp.exp(mp.mpf(v)) for v in x.double().tolist()]
        total = mp.fsum(values)
        return [v / total for v in values]

    return mp.fsum(a * mp.log(a / b) for a, b in zip(normalised(p), normalised(q), strict=True))


@pytest.mark.parametrize("gap", [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])
def test_kl_from_near_to_far(gap: float) -> None:
    torch.manual_seed(1)
    p = torch.randn(50)
    q = p + gap * torch.randn(50)
    exact = exact_kl(p, q)
    assert float(abs(mp.mpf(stable.kl_from_logits(p, q).item()) - exact) / exact) < 1e-3
    exact64 = stable.kl_from_logits(p.double(), q.double()).item()
    assert float(abs(mp.mpf(exact64) - exact) / exact) < 1e-10


def test_entropy() -> None:
    torch.manual_seed(1)
    x = torch.randn(7, 50, dtype=torch.float64) * 30
    wanted = torch.distributions.Categorical(logits=x).entropy()
    torch.testing.assert_close(stable.entropy_from_logits(x), wanted)
    got = stable.entropy_from_logits(x.float()).double()
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "compute", [lambda y: y, torch.Tensor.requires_grad_], ids=["bare", "grad"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_inv_has_all_its_digits_next_to_its_root(dtype: torch.dtype, compute: Any) -> None:
    steps = [sign * 10.0**-k for k in range(1, 12) for sign in (-1, 1)]
    y = torch.tensor([math.log(2) + step for step in steps], dtype=dtype)
    got = stable.softplus_inv(compute(y.clone())).detach().tolist()
    for value, at in zip(got, y.tolist(), strict=True):
        exact = mp.log(mp.expm1(mp.mpf(at)))
        assert abs(value - exact) <= 8 * torch.finfo(dtype).eps * abs(exact)


@pytest.mark.parametrize(
    "logits", [[20.0, 0.0], [40.0, 0.0, -3.0], [16.5, 0.1, 0.2], [5.0, 5.0, -60.0]]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_of_a_nearly_certain_distribution(dtype: torch.dtype, logits: list[float]) -> None:
    x = torch.tensor(logits, dtype=dtype)
    weights = [mp.e ** mp.mpf(v) for v in x.tolist()]
    shares = [w / sum(weights) for w in weights]
    exact = -sum(p * mp.log(p) for p in shares)
    assert abs(stable.entropy_from_logits(x).item() - exact) <= 16 * torch.finfo(dtype).eps * exact
