"""The quick way through a function gives what the plain one gives, on any data."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from whynan import stable

INF, NAN = math.inf, math.nan
# More than one vector register of each, because torch treats the rest of a row differently.
ODD = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-40, 3e38, -3e38, 1e-20, -1e20])
PLAIN = torch.cat(
    [torch.linspace(-3, 3, 41), torch.logspace(-6, 6, 40), -torch.logspace(-6, 6, 40)]
)
EACH = torch.cat([ODD.repeat_interleave(7), PLAIN])
FIRST, SECOND = (x.reshape(-1).contiguous() for x in torch.meshgrid(EACH, EACH, indexing="ij"))

ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "log1mexp": stable.log1mexp,
    "log_cosh": stable.log_cosh,
    "tanh_log_det": stable.tanh_log_det,
    "softplus_inv": stable.softplus_inv,
    "expm1_minus": stable.expm1_minus,
    "safe_log": stable.safe_log,
    "safe_log floor": lambda x: stable.safe_log(x, floor=1e-3),
    "safe_sqrt": stable.safe_sqrt,
    "safe_pow": lambda x: stable.safe_pow(x, 0.3),
    "safe_acos": stable.safe_acos,
    "safe_asin": stable.safe_asin,
}
TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logsubexp": stable.logsubexp,
    "safe_div": stable.safe_div,
    "safe_div fill": lambda a, b: stable.safe_div(a, b, fill=3.0, min_abs=0.5),
    "safe_atan2": stable.safe_atan2,
    "safe_pow": stable.safe_pow,
}
torch.manual_seed(0)
VECTORS = torch.randn(24, 37) * torch.logspace(-30, 30, 24)[:, None]
SCORES = torch.randn(24, 37) * torch.logspace(-2, 2, 24)[:, None]
for rows in (VECTORS, SCORES):
    rows[3], rows[4, 5], rows[5, 5], rows[6, 5], rows[7] = 0.0, NAN, INF, -INF, -INF
OTHER = torch.randn(24, 37)
MASK = torch.rand(24, 37) > 0.4
MASK[10] = False
OF_VECTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "safe_norm": stable.safe_norm,
    "normalize": stable.normalize,
    "clip_norm": lambda x: stable.clip_norm(x, 1.0, dim=-1),
    "clip_norm long": lambda x: stable.clip_norm(x, 1e30, dim=-1),
    "clip_norm 0": lambda x: stable.clip_norm(x, 0.0, dim=-1),
    "cosine_similarity": lambda x: stable.cosine_similarity(x, OTHER),
    "cosine_similarity second": lambda x: stable.cosine_similarity(OTHER[0], x),
    "angle_between": lambda x: stable.angle_between(x, OTHER),
    "angle_between second": lambda x: stable.angle_between(OTHER[0], x),
}
OF_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "logsumexp": stable.logsumexp,
    "logsumexp masked": lambda x: stable.logsumexp(x, mask=MASK),
    "masked_softmax": lambda x: stable.masked_softmax(x, MASK),
    "masked_softmax uniform": lambda x: stable.masked_softmax(x, MASK, empty="uniform"),
    "masked_softmax columns": lambda x: stable.masked_softmax(x.T, MASK.T, dim=0).T,
    "entropy": stable.entropy_from_logits,
    "kl": lambda x: stable.kl_from_logits(x, OTHER),
    "kl second": lambda x: stable.kl_from_logits(OTHER, x),
}


def by_autograd(f: Callable[..., Tensor], *xs: Tensor) -> tuple[Tensor, ...]:
    given = [x.clone().requires_grad_() for x in xs]
    y = f(*given)
    weight = torch.linspace(0.5, 1.5, y.numel()).view(y.shape)
    first = torch.autograd.grad(y, given, weight, retain_graph=True)
    again = torch.autograd.grad(y, given, weight)
    torch.testing.assert_close(again, first, rtol=0.0, atol=0.0, equal_nan=True)
    with torch.no_grad():
        torch.testing.assert_close(f(*xs), y.detach(), rtol=0.0, atol=0.0, equal_nan=True)
    return y.detach(), *first


def by_func(f: Callable[..., Tensor], *xs: Tensor) -> tuple[Tensor, ...]:
    y, back = torch.func.vjp(f, *xs)[:2]
    return y, *back(torch.linspace(0.5, 1.5, y.numel()).view(y.shape))


def assert_agree(f: Callable[..., Tensor], *xs: Tensor) -> None:
    number = ~torch.stack(xs).isnan().any(0)
    (ours, *slopes), (wanted, *exact) = by_autograd(f, *xs), by_func(f, *xs)
    torch.testing.assert_close(ours, wanted, rtol=2e-6, atol=1e-37, equal_nan=True)
    for slope, right in zip(slopes, exact, strict=True):
        torch.testing.assert_close(
            slope[number], right[number], rtol=2e-6, atol=1e-37, equal_nan=True
        )


@pytest.mark.parametrize("name", ONE)
def test_one_argument(name: str) -> None:
    assert_agree(ONE[name], EACH)


@pytest.mark.parametrize("name", TWO)
def test_two_arguments(name: str) -> None:
    assert_agree(TWO[name], FIRST, SECOND)


def assert_rows_agree(f: Callable[[Tensor], Tensor], rows: Tensor, smallest: float) -> None:
    """With the plain form in float64, to a few digits of the largest value of the row."""
    sound = rows.isfinite().all(-1)
    (value, slope), (exact, right) = by_autograd(f, rows), by_func(f, rows.double())
    assert torch.equal(value.isnan(), exact.isnan())
    for ours, wanted in ((value[sound], exact[sound]), (slope[sound], right[sound])):
        ours, wanted = (x.double().reshape(len(x), -1) for x in (ours, wanted))
        same = ours == wanted  # infinities as well
        error = torch.where(same, 0.0, ours - wanted).abs().amax(-1)
        assert (error / wanted.abs().amax(-1).clamp(min=smallest)).max() < 2e-5


@pytest.mark.parametrize("name", OF_VECTORS)
def test_vectors(name: str) -> None:
    assert_rows_agree(OF_VECTORS[name], VECTORS, smallest=1e-37)


@pytest.mark.parametrize("name", OF_SCORES)
def test_scores(name: str) -> None:
    assert_rows_agree(OF_SCORES[name], SCORES, smallest=0.1)


BY_ROW = OF_VECTORS | OF_SCORES


# Both are torch's own doing: an import for forward mode, and how Dynamo looks at a Function.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("name", BY_ROW)
def test_compiled_gradients(name: str) -> None:
    compiled = torch.compile(BY_ROW[name], backend="aot_eager", fullgraph=True)
    x = OTHER.clone().requires_grad_()
    (ours,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(ours, by_func(lambda y: BY_ROW[name](y).sum(), OTHER)[1] / 0.5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_transforms_within_a_compiled_function() -> None:
    def norm(x: Tensor) -> Tensor:
        return stable.safe_norm(stable.log_cosh(x), dim=None)

    for transform in (torch.vmap, torch.func.grad):
        compiled = torch.compile(transform(norm), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(OTHER), transform(norm)(OTHER))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_forward_mode_without_torch_func() -> None:
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(OTHER, torch.ones_like(OTHER))
        tangent = torch.autograd.forward_ad.unpack_dual(stable.log_cosh(x)).tangent
    torch.testing.assert_close(tangent, OTHER.tanh())


# Within 1/2 of 0, where `torch.expm1` compiled for a CPU has few digits or none (2.13).
SMALL = torch.logspace(-7, -0.3, 40)
NEAR_ZERO: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "log1mexp": (stable.log1mexp, -SMALL),
    "logsubexp": (lambda x: stable.logsubexp(torch.zeros_like(x), x), -SMALL),
    "softplus_inv": (stable.softplus_inv, SMALL),
    "expm1_minus": (stable.expm1_minus, torch.cat([-SMALL, SMALL])),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.skipif(" " in torch.__file__, reason="torch.compile cannot link below a space")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("name", NEAR_ZERO)
def test_generated_code_keeps_the_digits_near_zero(name: str) -> None:
    f, x = NEAR_ZERO[name]
    exact = by_autograd(f, x.double())
    given = x.clone().requires_grad_()
    value = torch.compile(f, fullgraph=True)(given)
    weight = torch.linspace(0.5, 1.5, value.numel())
    (slope,) = torch.autograd.grad(value, given, weight)
    torch.testing.assert_close(value.double(), exact[0], rtol=8e-7, atol=0.0)
    torch.testing.assert_close(slope.double(), exact[1], rtol=8e-7, atol=0.0)
