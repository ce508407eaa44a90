"""A kernel is accused where another implementation is finite and right, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.record.test_tracer import anomalies_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
aten: Any = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@contextmanager
def overridden(name: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """Another CPU kernel for torch's operator, while the block runs."""
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "CPU")
    try:
        yield
    finally:
        library._destroy()


def spoilt(out: Tensor) -> Tensor:
    out = out.clone()
    out.view(-1)[0] = NAN
    return out


def of(function: Callable[[Tensor], Tensor], *shape: int) -> Callable[[], None]:
    """A loss of a function of a weight, and one update."""

    def program() -> None:
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(*shape))
        optimizer = torch.optim.SGD([w], lr=0.01)
        function(w).pow(2).sum().backward()
        optimizer.step()

    return program


def mechanism(program: Callable[[], object]) -> str:
    found = anomalies_of(program)
    assert found, "no harm seen"
    return found[0].finding.mechanism


def layer_norm(x: Tensor, shape: Any, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    rstd = ((x - mean).pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return spoilt((x - mean) * rstd * w + b), mean, rstd


def layer_norm_backward(
    g: Tensor, x: Tensor, shape: Any, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor, mask: Any
) -> tuple[Tensor, ...]:
    return spoilt(g * rstd), g.sum(0), g.sum(0)


def convolution(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    return torch.full((x.shape[0], w.shape[0], x.shape[2] - 2, x.shape[3] - 2), NAN)


def convolution_backward(g: Tensor, x: Tensor, w: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return spoilt(torch.zeros_like(x)), spoilt(torch.zeros_like(w)), g.sum((0, 2, 3))


def flash(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return spoilt(scores.softmax(-1) @ v), scores.logsumexp(-1)


def flash_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> Any:
    return spoilt(torch.zeros_like(q)), torch.zeros_like(k), torch.zeros_like(v)


def sgd(params: Any, grads: Any, buffers: Any, **named: Any) -> None:
    for p, g in zip(params, grads, strict=True):
        p.copy_(spoilt(p - named["lr"] * g))


def adam(params: Any, *rest: Any, **named: Any) -> None:
    for p in params:
        p.copy_(spoilt(p))


def attend(w: Tensor) -> Tensor:
    q = w.view(1, 2, 6, 8)
    return F.scaled_dot_product_attention(q, q * 0.5, q + 1)


def fused(kind: Any) -> Callable[[], None]:
    """With gradients so large that the update is recorded."""

    def program() -> None:
        w = nn.Parameter(torch.ones(4))
        optimizer = kind([w], lr=1e-15, fused=True)
        (w * 1e13).sum().backward()
        optimizer.step()

    return program


WRONG: list[tuple[str, str, Callable[..., Any], Callable[[], None]]] = [
    ("layer norm", "native_layer_norm", layer_norm, of(lambda w: F.layer_norm(w, (8,), torch.ones(8), torch.zeros(8)), 4, 8)),
    ("its gradient", "native_layer_norm_backward", layer_norm_backward,
     of(lambda w: F.layer_norm(w, (8,), torch.ones(8), torch.zeros(8)).pow(2), 4, 8)),
    ("convolution", "convolution", convolution, of(lambda w: F.conv2d(torch.ones(2, 3, 6, 6), w), 4, 3, 3, 3)),
    ("its gradient", "convolution_backward", convolution_backward,
     of(lambda w: F.conv2d(torch.ones(2, 3, 6, 6), w).pow(2), 4, 3, 3, 3)),
    ("attention", "_scaled_dot_product_flash_attention_for_cpu", flash, of(attend, 96)),
    ("its gradient", "_scaled_dot_product_flash_attention_for_cpu_backward", flash_backward, of(attend, 96)),
    ("fused SGD", "_fused_sgd_", sgd, fused(torch.optim.SGD)),
    ("fused Adam", "_fused_adam_", adam, fused(torch.optim.Adam)),
    ("fused AdamW", "_fused_adamw_", adam, fused(torch.optim.AdamW)),
    ("exp", "exp", lambda x: spoilt(torch.ones_like(x)), of(torch.exp, 5)),
    ("softmax", "_softmax", lambda x, dim, half: spoilt(torch.zeros_like(x)), of(lambda w: w.softmax(0).pow(2), 5)),
    ("its gradient", "_softmax_backward_data", lambda g, out, dim, dtype: spoilt(torch.zeros_like(g)),
     of(lambda w: w.softmax(0).pow(2), 5)),
    ("log softmax", "_log_softmax", lambda x, dim, half: spoilt(torch.zeros_like(x)), of(lambda w: w.log_softmax(0), 5)),
    ("matrix product", "mm", lambda a, b: spoilt(torch.zeros(a.shape[0], b.shape[1])), of(lambda w: w @ w.T, 3, 4)),
    ("batched product", "bmm", lambda a, b: spoilt(torch.zeros(a.shape[0], a.shape[1], b.shape[2])),
     of(lambda w: torch.bmm(w, w.mT), 2, 3, 4)),
    ("gelu", "gelu", lambda x, **named: spoilt(torch.zeros_like(x)), of(F.gelu, 6)),
    ("silu", "silu", lambda x: spoilt(torch.zeros_like(x)), of(F.silu, 6)),
    ("its gradient", "silu_backward", lambda g, x: spoilt(torch.zeros_like(g)), of(F.silu, 6)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kernel", "program"), [w[1:] for w in WRONG], ids=[w[1] for w in WRONG]
)
def test_a_wrong_kernel_is_named(name: str, kernel: Any, program: Callable[[], None]) -> None:
    with overridden(name, kernel):
        found = anomalies_of(program)
    assert found[0].finding.mechanism == "wrong_kernel", found[0].finding
    assert name.strip("_") in found[0].finding.observed[0]


def half(dtype: torch.dtype, function: Callable[[Tensor], Tensor], *shape: int) -> Any:
    return of(lambda w: function(w.to(dtype)).float(), *shape)


# Faults of the mathematics, of the type, and of rounding.
LOOK_ALIKES: dict[str, Callable[[], object]] = {
    "log of 0": of(lambda w: torch.log(w * 0), 4),
    "log of a negative": of(lambda w: torch.log(-w.abs() - 1), 4),
    "sqrt of a negative": of(lambda w: torch.sqrt(-w.abs() - 1), 4),
    "sqrt at 0": of(lambda w: torch.sqrt(w * 0), 4),
    "division by 0": of(lambda w: w / (w * 0), 4),
    "reciprocal of 0": of(lambda w: torch.reciprocal(w * 0), 4),
    "power of 0": of(lambda w: (w * 0) ** -1.0, 4),
    "acos outside": of(lambda w: torch.acos(w.abs() + 2), 4),
    "atanh at 1": of(lambda w: torch.atanh(w * 0 + 1), 4),
    "exp too large": of(lambda w: torch.exp(w + 200), 4),
    "exp at the edge": of(lambda w: torch.exp(w * 0 + 88.8), 4),
    "square too large": of(lambda w: (w * 1e30) ** 2, 4),
    "sum too large": of(lambda w: (w.abs() * 1e38).repeat(100).sum(), 8),
    "sum by its order": of(lambda w: (torch.tensor([3e38, 3e38, -3e38, -3e38]) * (w * 0 + 1)).sum(), 4),
    "product too large": of(lambda w: (w.abs() + 1e20).prod(), 4),
    "matrix product too large": of(lambda w: (w * 1e20) @ (w * 1e20).T, 3, 4),
    "norm too large": of(lambda w: (w * 1e30).norm(), 4),
    "norm at 0": of(lambda w: (w * 0).pow(2).sum().sqrt(), 4),
    "mean of nothing": of(lambda w: w[:0].mean() + w.sum(), 4),
    "cross entropy of nothing": of(lambda w: F.cross_entropy(w, torch.full((4,), -100)), 4, 3),
    "layer norm of a constant without eps": of(lambda w: F.layer_norm(w * 0 + 1, (8,), eps=0.0), 4, 8),
    "layer norm of huge values": of(lambda w: F.layer_norm(w * 1e25, (8,)), 4, 8),
    "derivative of a layer norm of huge values": of(lambda w: F.layer_norm(w * 4e17, (16,), torch.full((16,), 1e4)) * 1e14, 4, 16),
    "convolution too large": of(lambda w: F.conv1d(torch.full((1, 2, 9), 1e38), w * 100), 2, 2, 3),
    "attention of huge values": of(lambda w: attend(w * 1e25), 96),
    "float16 overflow": half(torch.float16, lambda w: (w + 300) ** 2, 6),
    "float16 sum": half(torch.float16, lambda w: (w.abs() + 30000).sum(), 6),
    "float16 product": half(torch.float16, lambda w: (w * 100) @ (w * 100).T, 64, 64),
    "float16 exp": half(torch.float16, lambda w: torch.exp(w + 12), 6),
    "bfloat16 log of a rounded difference": half(torch.bfloat16, lambda w: torch.log((w.abs() + 1) - (w.abs() + 1)), 6),
    "bfloat16 overflow": half(torch.bfloat16, lambda w: torch.exp(w + 100), 6),
    "float16 eps that is none": half(torch.float16, lambda w: F.binary_cross_entropy(w * 0, w.detach() * 0), 6),
    "logit at 1": of(lambda w: torch.logit(w * 0 + 1), 4),
    "lgamma at 0": of(lambda w: torch.lgamma(w * 0), 4),
    "inverse of a singular matrix": of(lambda w: torch.linalg.inv_ex(w * 0)[0], 3, 3),
    "sigmoid by hand": of(lambda w: torch.exp(w + 100) / (1 + torch.exp(w + 100)), 4),
    "integers times an infinite number": of(lambda w: w + torch.zeros(4, dtype=torch.int64) * INF, 4),
    "true and false times an infinite number": of(lambda w: w + torch.zeros(4, dtype=torch.bool) * INF, 4),
    "zero times an infinite number": of(lambda w: (w * 0) * INF, 4),
    "integers by integers": of(lambda w: w + torch.zeros(4, dtype=torch.int64) / torch.zeros(4, dtype=torch.int64), 4),
    "log of integers": of(lambda w: w + torch.log(torch.arange(4)), 4),
    "exp of integers": of(lambda w: w + torch.exp(torch.full((4,), 200)), 4),
    "a number beyond the type": of(lambda w: w * 0 + torch.zeros(4) * 1e300, 4),
    "an infinite share": of(lambda w: torch.add(w, torch.zeros(4), alpha=INF), 4),
    "an infinite share of a product": of(lambda w: torch.addmm(torch.zeros(3, 3), w, w, alpha=INF, beta=0), 3, 3),
    "an infinite factor of a product": of(lambda w: torch.addcmul(w, w * 0, w, value=INF), 4),
    "an infinite factor of a quotient": of(lambda w: torch.addcdiv(w, w * 0, w, value=INF), 4),
    "an infinite weight": of(lambda w: torch.lerp(w, w.detach(), INF), 4),
    "a number without dimensions beyond the type": of(lambda w: w * torch.tensor(1e300, dtype=torch.float64), 4),
    "an infinite number without dimensions": of(lambda w: (w * 0) * torch.tensor(INF), 4),
    "an infinite exponent": of(lambda w: (w.abs() + 2) ** INF, 4),
    "softmax of nothing": of(lambda w: w.sum() + w[:, :0].logsumexp(1), 4, 3),
    "largest difference of nothing": of(lambda w: w.sum() + F.mse_loss(w[:0], w[:0]), 4),
    "layer norm of integers without eps": of(lambda w: w + F.layer_norm(torch.ones(4, 8).long().float(), (8,), eps=0.0), 4, 8),
    "binary cross entropy by hand": of(lambda w: torch.log(1 - torch.sigmoid(w + 40)), 4),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_no_kernel_is_accused_of(name: str) -> None:
    found = anomalies_of(LOOK_ALIKES[name])
    named = [a.finding.mechanism for a in found]
    assert not {"wrong_kernel", "unstable_result"} & set(named), found[0].finding


def like_tf32(a: Tensor, b: Tensor) -> Tensor:
    """Operands with eight digits, as some devices multiply them."""
    return (a.bfloat16().float().unsqueeze(-1) * b.bfloat16().float().unsqueeze(0)).sum(1)


def in_any_order(x: Tensor, **named: Any) -> Tensor:
    """A sum whose order is another one each time, as of threads that add to one number."""
    flat = x.reshape(-1)
    return flat[torch.randperm(flat.numel())].cumsum(0)[-1]


def summed(*values: float) -> Callable[[], None]:
    return of(lambda w: (torch.tensor(values) * (w.sum() * 0 + 1)).sum(), 1)


# Kernels that are right as far as their digits go: (operator, kernel, program).
NOISY: dict[str, tuple[str, Callable[..., Any], Callable[[], object]]] = {
    "log of products that should be equal": ("mm", like_tf32, of(lambda w: torch.log((w @ w.T) - (w.double() @ w.T.double()).float()), 4, 4)),
    "quotient by a product": ("mm", like_tf32, of(lambda w: 1 / ((w @ w.T) * 0), 4, 4)),
    "product too large": ("mm", like_tf32, of(lambda w: (w * 1e20) @ (w.T * 1e20), 4, 4)),
    "product near the end": ("mm", like_tf32, of(lambda w: (w * 0 + 1.3e19) @ (w.T * 0 + 1.3e19), 2, 2)),
    "root of what cancels": ("mm", like_tf32, of(lambda w: torch.sqrt((w @ w.T) - (w.double() @ w.T.double()).float() - 1e-9), 4, 4)),
    "sum in any order": ("sum", in_any_order, summed(3e38, 3e38, -3e38, -3e38)),
    "sum in any order, often": ("sum", in_any_order, summed(*[2e38, -2e38] * 6)),
    "reciprocal of a sum in any order": ("sum", in_any_order, of(lambda w: 1 / ((torch.tensor([1e8, 1.0, -1e8, -1.0]) * (w * 0 + 1)).sum() * 0), 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_no_fault_of_a_kernel(name: str) -> None:
    operator, kernel, program = NOISY[name]
    torch.manual_seed(1)
    with overridden(operator, kernel):
        named = [a.finding.mechanism for a in anomalies_of(program)]
    assert not {"wrong_kernel", "unstable_result"} & set(named)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_healthy_noise_is_silent(dtype: torch.dtype) -> None:
    assert anomalies_of(half(dtype, lambda w: (w @ w.T).softmax(-1), 16, 16)) == ()


def test_a_custom_operator_is_compared_with_its_composite_kernel() -> None:
    library = torch.library.Library("whynan_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: spoilt(x * 2), "CPU")
    operators: Any = torch.ops.whynan_test

    def program() -> None:
        w = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * operators.twice(torch.ones(3))).sum().backward()
        optimizer.step()

    assert mechanism(program) == "wrong_kernel"


def test_a_setting_that_makes_a_kernel_less_exact_is_named() -> None:
    def hasty(a: Tensor, b: Tensor) -> Tensor:
        out = (a.unsqueeze(-1) * b.unsqueeze(0)).sum(1)
        return out if torch.get_float32_matmul_precision() == "highest" else spoilt(out)

    program = of(lambda w: w @ w.T, 3, 4)
    torch.set_float32_matmul_precision("medium")
    try:
        with overridden("mm", hasty):
            found = anomalies_of(program)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    finding = found[0].finding
    assert "a setting lets aten::mm compute less exactly" in finding.headline
    assert [fix.kind for fix in finding.fixes] == ["full_precision"]
    assert 'set_float32_matmul_precision("highest")' in finding.fixes[0].title


def test_nothing_of_the_programs_is_disturbed_by_asking_others() -> None:
    torch.manual_seed(3)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    with overridden("exp", lambda x: spoilt(torch.ones_like(x))):
        w = nn.Parameter(torch.ones(3))

        def program() -> None:
            optimizer = torch.optim.SGD([w], lr=0.1)
            (w * torch.exp(torch.ones(3))).sum().backward()
            optimizer.step()

        assert mechanism(program) == "wrong_kernel"
    assert torch.equal(torch.rand(3), drawn)
    assert torch.backends.mkldnn.enabled


# ---- kernels that are right until a value on their way overflows, or cancels -------------------


def naive_group_norm(
    x: Tensor, w: Tensor, b: Tensor, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Tensor, ...]:
    g = x.reshape(n, groups, -1)
    mean = g.mean(-1, keepdim=True)
    rstd = ((g * g).mean(-1, keepdim=True) - mean * mean - 1e-2 + eps).rsqrt()
    return ((g - mean) * rstd).reshape(x.shape), mean[..., 0], rstd[..., 0]


def naive_batch_norm(
    x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor, training: bool, m: float, eps: float
) -> tuple[Tensor, ...]:
    mu = x.mean(0)
    rstd = ((x * x).mean(0) - mu * mu - 1e-2 + eps).rsqrt()
    return (x - mu) * rstd * w + b, mu, rstd


def weight_gradient(g: Tensor, x: Tensor, w: Tensor, *rest: Any) -> tuple[Any, ...]:
    return None, spoilt(torch.zeros_like(w)), g.sum((0, 2, 3))


def group_norm(w: Tensor) -> Tensor:
    return F.group_norm(w.view(2, 4, 6) * 0 + 700.1, 2, torch.ones(4), torch.zeros(4))


def batch_norm(w: Tensor) -> Tensor:
    return F.batch_norm(w * 0 + 700.1, torch.zeros(4), torch.ones(4), torch.ones(4), torch.zeros(4), True)  # fmt: skip


NAIVE: dict[str, tuple[str, Callable[..., Any], Callable[[], None]]] = {
    "softmax": ("_softmax", lambda x, d, half: torch.exp(x) / torch.exp(x).sum(d, keepdim=True),
                of(lambda w: (w * 0 + torch.tensor([0.0, 300.0, -300.0])).softmax(0), 3)),
    "softplus": ("softplus", lambda x, *rest: torch.log(1 + torch.exp(x)), of(lambda w: F.softplus(w + 120), 4)),
    "sigmoid": ("sigmoid", lambda x: torch.exp(x) / (1 + torch.exp(x)), of(lambda w: torch.sigmoid(w + 120), 4)),
    "tanh": ("tanh", lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)), of(lambda w: torch.tanh(w + 120), 4)),
    "logsigmoid": ("log_sigmoid_forward", lambda x: (torch.log(1 / (1 + torch.exp(-x))), x), of(lambda w: F.logsigmoid(w - 120), 4)),
    "gradient of log softmax": ("_log_softmax_backward_data", lambda g, out, d, t: out.exp() * (g / out.exp() - g.sum(d, keepdim=True)),
                                of(lambda w: (w * 0 + w.detach() * 500).log_softmax(0), 5)),
    "group norm of equal values": ("native_group_norm", naive_group_norm, of(group_norm, 48)),
    "batch norm of equal values": ("native_batch_norm", naive_batch_norm, of(batch_norm, 8, 4)),
    "gradient of a first convolution": ("convolution_backward", weight_gradient, of(lambda w: F.conv2d(torch.ones(2, 3, 6, 6), w).pow(2), 4, 3, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAIVE)
def test_a_kernel_that_overflows_or_cancels_where_another_does_not_is_named(name: str) -> None:
    operator, kernel, program = NAIVE[name]
    with overridden(operator, kernel):
        assert mechanism(program) == "wrong_kernel"


def addcdiv_(tensors: Any, *rest: Any) -> None:
    tensors[0].copy_(spoilt(tensors[0]))


def spoils_the_update(optimizer: Callable[[list[nn.Parameter]], Any]) -> Callable[[], None]:
    """Ordinary gradients, with which no right update overflows."""

    def program() -> None:
        torch.manual_seed(0)
        w = nn.Parameter(torch.ones(4))
        update = optimizer([w])
        (w * torch.randn(4)).sum().backward()
        update.step()

    return program


UPDATES: dict[str, tuple[str, Callable[..., Any], Callable[[], None]]] = {
    "fused Adam": ("_fused_adam_", adam, spoils_the_update(lambda p: torch.optim.Adam(p, fused=True))),
    "fused SGD, its first step with momentum": ("_fused_sgd_", sgd, spoils_the_update(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True))),
    "Adam of lists": ("_foreach_addcdiv_.ScalarList", addcdiv_, spoils_the_update(lambda p: torch.optim.Adam(p, foreach=True))),
}  # fmt: skip


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_with_ordinary_gradients_is_compared_too(name: str) -> None:
    operator, kernel, program = UPDATES[name]
    with overridden(operator, kernel):
        found = anomalies_of(program)
    assert found[0].finding.mechanism == "wrong_kernel", found[0].finding
    assert found[0].evidence.origin.phase == "optimizer"


NORMED: dict[str, Callable[[], object]] = {
    "group norm of equal values without eps": of(lambda w: F.group_norm(w.view(2, 4, 6) * 0 + 0.3, 2, eps=0.0), 48),
    "float16 squares of a batch norm": half(torch.float16, lambda w: F.batch_norm((w * 600) ** 2, None, None, training=True), 8, 4),
    "nearly singular": of(lambda w: torch.linalg.inv_ex(torch.outer(w.detach(), w.detach()) + w * 0)[0], 4),
    "float16 softplus, times too much": half(torch.float16, lambda w: F.softplus(w + 300) * 300, 4),
    "attention of a huge scale": of(lambda w: attend(w * 1e18), 96),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMED)
def test_no_kernel_is_accused_of_the_range_or_of_a_missing_eps(name: str) -> None:
    named = [a.finding.mechanism for a in anomalies_of(NORMED[name])]
    assert not {"wrong_kernel", "unstable_result"} & set(named)


def test_a_nan_is_no_overflow_where_nothing_can_overflow() -> None:
    def distances(a: Tensor, b: Tensor, p: float, mode: Any) -> Tensor:
        return torch.full((a.shape[0], b.shape[0]), NAN, dtype=a.dtype) if a.dtype == torch.float32 else torch.ones(a.shape[0], b.shape[0], dtype=a.dtype)  # fmt: skip

    with overridden("_cdist_forward", distances):
        assert mechanism(of(lambda w: torch.cdist(w, w + 1), 3, 2)) == "opaque"


def test_of_a_large_operation_it_is_said_that_nobody_else_was_asked() -> None:
    with overridden("gelu", lambda x, **named: spoilt(torch.zeros_like(x))):
        found = anomalies_of(of(lambda w: F.gelu(w.expand(3_000, 2_000)), 1, 2_000))
    assert found[0].finding.mechanism != "wrong_kernel"
    told = " ".join(found[0].finding.unknown)
    assert "whether another kernel gives the same, for none was tried" in told
    assert "6,000,000 values in its operands, more than 4,194,304" in told
