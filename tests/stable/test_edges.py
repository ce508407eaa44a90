"""At the edges: values as documented, gradients 0 and never NaN, NaN in and NaN out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from whynan import stable

INF, NAN = math.inf, math.nan
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
MASK = torch.tensor([[True, False, True], [False, False, False]])


def value_and_grad(f: Callable[..., Tensor], *given: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    xs = [torch.tensor(g, dtype=dtype, requires_grad=True) for g in given]
    y = f(*xs)
    assert y.dtype == dtype
    slopes = torch.autograd.grad(y.sum(), xs, materialize_grads=True)
    return y.tolist(), *(s.tolist() for s in slopes)


# function, inputs, value, gradients
EDGES: list[tuple[Any, ...]] = [
    ("log1mexp", stable.log1mexp, ([0.0, -INF],), [-INF, 0.0], [-INF, 0.0]),
    ("logsubexp both -inf", stable.logsubexp, ([-INF], [-INF]), [-INF], [0.0], [0.0]),
    ("logsubexp equal", stable.logsubexp, ([3.0], [3.0]), [-INF], [INF], [-INF]),
    ("logsubexp of nothing", stable.logsubexp, ([3.0], [-INF]), [3.0], [1.0], [0.0]),
    ("log_cosh", stable.log_cosh, ([0.0, INF, -INF],), [0.0, INF, INF], [0.0, 1.0, -1.0]),
    ("softplus_inv", stable.softplus_inv, ([0.0, INF],), [-INF, INF], [INF, 1.0]),
    ("expm1_minus", stable.expm1_minus, ([0.0, -INF, INF],), [0.0, INF, INF], None),
    ("safe_div", stable.safe_div, ([1.0, 0.0, 6.0], [0.0, 0.0, 2.0]), [0.0, 0.0, 3.0], [0.0, 0.0, 0.5], [0.0, 0.0, -1.5]),
    ("safe_div inf by 0", stable.safe_div, ([INF], [0.0]), [0.0], [0.0], [0.0]),
    ("safe_div fill", lambda a, b: stable.safe_div(a, b, fill=7.0, min_abs=0.5), ([1.0], [-0.25]), [7.0], [0.0], [0.0]),
    ("safe_sqrt", stable.safe_sqrt, ([0.0, -4.0, 4.0, INF],), [0.0, 0.0, 2.0, INF], [0.0, 0.0, 0.25, 0.0]),
    ("safe_pow", lambda x: stable.safe_pow(x, 0.5), ([0.0, -4.0, 4.0],), [0.0, 0.0, 2.0], [0.0, 0.0, 0.25]),
    ("safe_atan2 origin", stable.safe_atan2, ([0.0], [0.0]), [0.0], [0.0], [0.0]),
    ("safe_norm zero", stable.safe_norm, ([[0.0, 0.0]],), [0.0], [[0.0, 0.0]]),
    ("safe_norm inf", stable.safe_norm, ([[INF, 1.0]],), [INF], None),
    ("normalize zero", stable.normalize, ([[0.0, 0.0]],), [[0.0, 0.0]], [[0.0, 0.0]]),
    ("cosine of zero", stable.cosine_similarity, ([[0.0, 0.0]], [[1.0, 0.0]]), [0.0], [[0.0, 0.0]], [[0.0, 0.0]]),
    ("angle of itself", stable.angle_between, ([[1.0, 0.0]], [[1.0, 0.0]]), [0.0], [[0.0, 0.0]], [[0.0, 0.0]]),
    ("clip_norm zero", lambda x: stable.clip_norm(x, 1.0), ([0.0, 0.0],), [0.0, 0.0], [1.0, 1.0]),
    ("masked_softmax", lambda x: stable.masked_softmax(x, MASK), ([[1.0, NAN, 1.0], [NAN, INF, 3.0]],), [[0.5, 0.0, 0.5], [0.0] * 3], [[0.0] * 3, [0.0] * 3]),
    ("masked_softmax of -inf", lambda x: stable.masked_softmax(x, x > -99), ([[-INF, -INF]],), [[0.0, 0.0]], [[0.0, 0.0]]),
    ("masked_softmax uniform", lambda x: stable.masked_softmax(x, x > INF, empty="uniform"), ([[5.0, NAN]],), [[0.5, 0.5]], [[0.0, 0.0]]),
    ("masked_log_softmax", lambda x: stable.masked_log_softmax(x, MASK)[1], ([[1.0, NAN, 1.0], [NAN, INF, 3.0]],), [-INF] * 3, [[0.0] * 3, [0.0] * 3]),
    ("masked_mean", lambda x: stable.masked_mean(x, MASK, dim=-1), ([[1.0, NAN, 3.0], [NAN, INF, 3.0]],), [2.0, 0.0], [[0.5, 0.0, 0.5], [0.0] * 3]),
    ("masked_mean all", lambda x: stable.masked_mean(x, MASK), ([[1.0, NAN, 3.0], [NAN, INF, 3.0]],), 2.0, [[0.5, 0.0, 0.5], [0.0] * 3]),
    ("masked_var", lambda x: stable.masked_var(x, MASK, dim=-1), ([[1.0, NAN, 3.0], [NAN, INF, 3.0]],), [1.0, 0.0], [[-1.0, 0.0, 1.0], [0.0] * 3]),
    ("masked_std constant", lambda x: stable.masked_std(x, MASK, dim=-1), ([[2.0, NAN, 2.0], [NAN, INF, 3.0]],), [0.0, 0.0], [[0.0] * 3, [0.0] * 3]),
    ("std of one", stable.std, ([4.0],), 0.0, [0.0]),
    ("std of constant", stable.std, ([4.0, 4.0],), 0.0, [0.0, 0.0]),
    ("std of none", lambda x: stable.std(x, fill=-1.0), ([],), -1.0, []),
    ("std eps", lambda x: stable.std(x, eps=0.5), ([4.0, 4.0],), 0.5, [0.0, 0.0]),
    ("logsumexp of nothing", stable.logsumexp, ([[-INF, -INF]],), [-INF], [[0.0, 0.0]]),
    ("logsumexp masked", lambda x: stable.logsumexp(x, mask=MASK), ([[1.0, NAN, -INF], [NAN, INF, 3.0]],), [1.0, -INF], [[1.0, 0.0, 0.0], [0.0] * 3]),
    ("softmax temperature 0", lambda x: stable.softmax(x, temperature=0.0), ([[1.0, 3.0, 3.0]],), [[0.0, 0.5, 0.5]], [[0.0] * 3]),
    ("softmax cold", lambda x: stable.softmax(x, temperature=1e-3), ([[100.0, 101.0]],), [[0.0, 1.0]], [[0.0] * 2]),
    ("softmax hidden class", lambda x: stable.softmax(x, temperature=0.5), ([[1.0, -INF]],), [[1.0, 0.0]], [[0.0] * 2]),
    ("softmax of one number", lambda x: stable.softmax(x, temperature=0.5), (3.0,), 1.0, 0.0),
    ("log_softmax temperature 0", lambda x: stable.log_softmax(x, temperature=0.0), ([[1.0, 3.0]],), [[-INF, 0.0]], None),
    ("entropy with hidden class", stable.entropy_from_logits, ([[0.0, -INF]],), [0.0], [[0.0, 0.0]]),
    ("kl with hidden classes", stable.kl_from_logits, ([[0.0, -INF]], [[0.0, -INF]]), [0.0], [[0.0, 0.0]], [[0.0, 0.0]]),
    ("kl of the impossible", stable.kl_from_logits, ([[0.0, 0.0]], [[0.0, -INF]]), [INF], None),
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e[0])
def test_edge(edge: tuple[Any, ...], dtype: torch.dtype) -> None:
    _, f, given, value, *slopes = edge
    got = value_and_grad(f, *given, dtype=dtype)
    torch.testing.assert_close(torch.tensor(got[0]), torch.tensor(value))
    if slopes != [None]:
        for ours, wanted in zip(got[1:], slopes, strict=True):
            torch.testing.assert_close(
                torch.tensor(ours), torch.tensor(wanted), atol=1e-6, rtol=0.0
            )


ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "log1mexp": stable.log1mexp,
    "logsubexp": lambda x: stable.logsubexp(x, x - 1),
    "logsubexp second": lambda x: stable.logsubexp(torch.tensor(-INF), x),
    "log_cosh": stable.log_cosh,
    "tanh_log_det": stable.tanh_log_det,
    "softplus_inv": stable.softplus_inv,
    "expm1_minus": stable.expm1_minus,
    "safe_div": lambda x: stable.safe_div(1.0, x, min_abs=0.1),
    "safe_log": stable.safe_log,
    "safe_sqrt": stable.safe_sqrt,
    "safe_pow": lambda x: stable.safe_pow(x, 0.5),
    "safe_pow exponent": lambda x: stable.safe_pow(torch.tensor(2.0), x),
    "safe_acos": stable.safe_acos,
    "safe_asin": stable.safe_asin,
    "safe_atan2": lambda x: stable.safe_atan2(x, torch.tensor([2.0])),
    "safe_norm": lambda x: stable.safe_norm(x),
    "normalize": stable.normalize,
    "clip_norm": lambda x: stable.clip_norm(x, 1.0),
    "softmax": lambda x: stable.softmax(x, temperature=0.5),
    "softmax 0": lambda x: stable.softmax(x, temperature=0.0),
    "entropy": stable.entropy_from_logits,
    "kl": lambda x: stable.kl_from_logits(x, torch.zeros_like(x)),
    "logsumexp": stable.logsumexp,
    "masked_mean": lambda x: stable.masked_mean(x, torch.tensor([True])),
}


@pytest.mark.parametrize("f", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_nan_in_nan_out(f: Callable[[Tensor], Tensor]) -> None:
    assert f(torch.tensor([NAN])).isnan().all()


GRADCHECK: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {}


def checked(name: str, f: Callable[..., Tensor], *xs: Tensor) -> None:
    GRADCHECK[name] = (f, [x.double() for x in xs])


torch.manual_seed(0)
SCORES = torch.randn(3, 5)
KEEP = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).bool()
checked("log1mexp", stable.log1mexp, torch.tensor([-5.0, -0.7, -0.6, -0.1]))
checked("logsubexp", stable.logsubexp, torch.tensor([5.0, 1.0]), torch.tensor([-5.0, 0.5]))
checked("log_cosh", stable.log_cosh, torch.tensor([-9.0, -0.4, 0.0, 0.3, 0.6]))
checked("tanh_log_det", stable.tanh_log_det, torch.tensor([-9.0, -0.4, 0.0, 0.3, 0.6]))
checked("softplus_inv", stable.softplus_inv, torch.tensor([0.1, 1.0, 9.9, 10.1]))
checked("expm1_minus", stable.expm1_minus, torch.tensor([-3.0, -0.4, 0.0, 0.4, 2.0]))
checked("safe_div", stable.safe_div, torch.tensor([1.0, 2.0]), torch.tensor([0.5, -2.0]))
checked("safe_log", stable.safe_log, torch.tensor([0.1, 3.0]))
checked("safe_sqrt", stable.safe_sqrt, torch.tensor([0.1, 3.0, -1.0]))
checked("safe_pow", stable.safe_pow, torch.tensor([0.1, 3.0]), torch.tensor([-1.5, 0.3]))
checked("safe_acos", stable.safe_acos, torch.tensor([-0.9, 0.0, 0.5]))
checked("safe_asin", stable.safe_asin, torch.tensor([-0.9, 0.0, 0.5]))
checked("safe_atan2", stable.safe_atan2, torch.tensor([1.0, -2.0]), torch.tensor([-0.5, 2.0]))
checked("safe_norm", stable.safe_norm, SCORES)
checked("normalize", stable.normalize, SCORES)
checked("cosine_similarity", stable.cosine_similarity, SCORES, SCORES.flip(0) + 1)
checked("angle_between", stable.angle_between, SCORES, SCORES.flip(1) + 1)
checked("clip_norm", lambda x: stable.clip_norm(x, 1.0, dim=-1), SCORES)
checked("softmax", lambda x: stable.softmax(x, temperature=0.5), SCORES)
checked("softmax learned", lambda x, t: stable.softmax(x, temperature=t), SCORES, torch.tensor(0.7))
checked("log_softmax", lambda x, t: stable.log_softmax(x, temperature=t), SCORES, torch.tensor([[0.7], [1.0], [2.0]]))  # fmt: skip
checked("clipped_softmax", stable.clipped_softmax, SCORES)
checked("masked_softmax", lambda x: stable.masked_softmax(x, KEEP), SCORES)
checked("masked_log_softmax", lambda x: stable.masked_log_softmax(x, KEEP)[KEEP], SCORES)
checked("masked_mean", lambda x: stable.masked_mean(x, KEEP, dim=-1), SCORES)
checked("masked_var", lambda x: stable.masked_var(x, KEEP, dim=-1), SCORES)
checked("masked_std", lambda x: stable.masked_std(x, KEEP, dim=-1), SCORES)
checked("std", lambda x: stable.std(x, dim=-1), SCORES)
checked("logsumexp", lambda x: stable.logsumexp(x, mask=KEEP)[[0, 2]], SCORES)
checked("entropy", stable.entropy_from_logits, SCORES)
checked("kl", stable.kl_from_logits, SCORES, SCORES * 0.7 + 0.1)


@pytest.mark.parametrize("name", GRADCHECK)
def test_gradcheck_first_and_second_order(name: str) -> None:
    f, xs = GRADCHECK[name]
    xs = [x.clone().requires_grad_() for x in xs]
    assert torch.autograd.gradcheck(f, xs)
    assert torch.autograd.gradgradcheck(f, xs)


# Both are torch's own doing: an import for forward mode, and how Dynamo looks at a Function.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("name", GRADCHECK)
def test_torch_func_and_compile(name: str) -> None:
    f, xs = GRADCHECK[name]
    torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(*xs), f(*xs))
    reverse, forward = torch.func.jacrev(f)(*xs), torch.func.jacfwd(f)(*xs)
    torch.testing.assert_close(reverse, forward)
    if "masked" not in name and "logsumexp" not in name and "learned" not in name:
        rows = [x.unsqueeze(0).expand(2, *x.shape) for x in xs]
        torch.testing.assert_close(torch.vmap(f)(*rows)[1], f(*xs))


def test_every_public_function_is_gradchecked_or_draws() -> None:
    tested = {name.split()[0] for name in GRADCHECK} | {"gumbel_like", "safe_categorical"}
    tested |= {"entropy_from_logits", "kl_from_logits"}
    assert set(stable.__all__) <= tested


def test_broadcasting_numbers_and_integers() -> None:
    x = torch.tensor([1, 0, 4])
    assert stable.safe_div(1, x).tolist() == [1.0, 0.0, 0.25]
    assert stable.safe_div(x, 2).tolist() == [0.5, 0.0, 2.0]
    assert stable.safe_log(torch.tensor([1])).tolist() == [0.0]
    half = torch.ones(2, 1, dtype=torch.float16)
    assert stable.safe_div(half, torch.ones(3, dtype=torch.float16)).shape == (2, 3)
    assert stable.safe_div(half, 3.0).dtype == torch.float16
    assert stable.masked_mean(torch.ones(2, 3), torch.tensor([True, False, True]), dim=1).shape == (
        2,
    )


def test_refusals_say_what_was_given() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"row \[1\] has nothing left"):
        stable.masked_softmax(x, MASK, empty="raise")
    with pytest.raises(TypeError, match=r"mask must be boolean \(True: keep\), got torch.float32"):
        stable.masked_softmax(x, x)
    with pytest.raises(ValueError, match="temperature must not be negative, got -1"):
        stable.softmax(x, temperature=-1)
    with pytest.raises(ValueError, match=r"floor must lie between 0 and 1/3, got 0\.5"):
        stable.clipped_softmax(x, floor=0.5)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_clipped_softmax_has_a_positive_floor_and_a_live_gradient(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, -500.0, -INF]], dtype=dtype)
    p = stable.clipped_softmax(x)
    assert (p > 0).all()
    assert p.sum().item() == pytest.approx(1, abs=2 * torch.finfo(dtype).eps)


def test_clip_norm_survives_a_norm_that_overflows() -> None:
    clipped = stable.clip_norm(torch.full((100,), 3e38), 1.0)
    assert torch.linalg.vector_norm(clipped).item() == pytest.approx(1, rel=1e-5)
    assert stable.clip_norm(torch.ones(2), 10.0).tolist() == [1.0, 1.0]


def test_a_learned_temperature_gets_a_finite_gradient_with_hidden_classes() -> None:
    t = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([[1.0, 2.0, -INF]])
    (slope,) = torch.autograd.grad(stable.log_softmax(x, temperature=t)[0, :2].sum(), t)
    assert math.isfinite(slope.item())


def test_cosine_never_exceeds_one() -> None:
    torch.manual_seed(0)
    u = torch.randn(2000, 8)
    assert stable.cosine_similarity(u, u * 3).max() <= 1


@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1.0, 1e20, 1e38])
@pytest.mark.parametrize("masked", [False, True])
def test_spread_of_values_of_any_size(scale: float, masked: bool) -> None:
    x = torch.tensor([scale, 3 * scale], requires_grad=True)
    keep = torch.ones(2, dtype=torch.bool)
    spread = stable.masked_std(x, keep) if masked else stable.std(x)
    (slope,) = torch.autograd.grad(spread, x)
    assert spread.item() == pytest.approx(scale, rel=1e-6)
    assert slope.tolist() == pytest.approx([-0.5, 0.5])


def test_spread_loses_no_digit_to_its_scale() -> None:
    x = torch.tensor([16777214.0, 16777215.0])
    assert stable.std(x) == 0.5
    assert stable.std(torch.tensor([1e300, 3e300], dtype=torch.float64)).item() == 1e300
    assert stable.std(x * 0 + 1e20, eps=1e-5).item() == pytest.approx(1e-5)


@pytest.mark.parametrize("function", [stable.softmax, stable.log_softmax])
@pytest.mark.parametrize("cold", [1e-20, 1e-30, 1e-38, 1e-42, 0.0])
def test_a_learned_temperature_may_become_very_cold(function: Any, cold: float) -> None:
    x = torch.tensor([1.0, 3.0, -2.0], requires_grad=True)
    t = torch.tensor(cold, requires_grad=True)
    slopes = torch.autograd.grad(function(x, temperature=t)[1], (x, t))
    (plain,) = torch.autograd.grad(function(x, temperature=cold)[1], x)
    assert slopes[0].tolist() == plain.tolist() == [0.0] * 3
    assert slopes[1].item() == 0
    through_func = torch.func.grad(lambda t: function(x, temperature=t)[1])(t)
    assert through_func.item() == 0


@pytest.mark.parametrize("function", [stable.softmax, stable.log_softmax])
def test_a_temperature_is_checked_in_either_form(function: Any) -> None:
    for negative in (-1.0, torch.tensor(-1.0), torch.tensor([[1.0], [-1.0]])):
        with pytest.raises(ValueError, match="temperature must not be negative, got -1"):
            function(torch.ones(2, 3), temperature=negative)


def both_ways(function: Any, *given: Any) -> list[tuple[list[Any], list[Any]]]:
    """Value and gradients, by the quick way and by the plain one that `torch.func` takes."""
    tensors = [torch.tensor(x) for x in given]
    leaves = [x.clone().requires_grad_() for x in tensors]
    value = function(*leaves)
    slopes = torch.autograd.grad(value.sum(), leaves)
    vjp: Any = torch.func.vjp
    plain_value, pull = vjp(function, *tensors)
    plain = pull(torch.ones_like(plain_value))
    return [
        (value.tolist(), [s.tolist() for s in slopes]),
        (plain_value.tolist(), [s.tolist() for s in plain]),
    ]


def test_negative_zero_is_zero() -> None:
    for value, (slope,) in both_ways(stable.softplus_inv, [-0.0, 0.0]):
        assert value == [-INF, -INF]
        assert slope == [INF, INF]
    for value, slopes in both_ways(stable.safe_atan2, [-0.0, 0.0, -0.0, 0.0], [-0.0, -0.0, 0.0, 0.0]):  # fmt: skip
        assert value == [0.0] * 4
        assert slopes == [[0.0] * 4] * 2


def test_nan_is_not_filled_or_raised_to_one() -> None:
    for fill in (0.0, 2.0):
        divide = lambda a, b: stable.safe_div(a, b, fill=fill)  # noqa: B023, E731 # used at once
        for value, slopes in both_ways(divide, [NAN, 1.0, INF], [0.0, 0.0, 0.0]):
            assert math.isnan(value[0])
            assert value[1:] == [fill, fill]
            assert slopes == [[0.0] * 3] * 2
    for value, _ in both_ways(stable.safe_pow, [NAN, 0.0, 2.0], [0.0, 0.0, 0.0]):
        assert math.isnan(value[0])
        assert value[1:] == [0.0, 1.0]


def test_an_infinite_divergence_has_no_nan_gradient() -> None:
    p, q = [[0.0, 0.0], [0.0, 1.0]], [[0.0, -INF], [1.0, 0.0]]
    for value, (of_p, of_q) in both_ways(stable.kl_from_logits, p, q):
        assert value[0] == INF
        assert of_p[0] == [0.0, 0.0]
        assert of_q[0] == pytest.approx([0.5, -0.5])
        assert of_p[1][0] == pytest.approx(-of_p[1][1])
        assert of_p[1][0] != 0


def test_rows_of_no_values_give_what_torch_gives() -> None:
    x, keep = torch.ones(2, 0), torch.ones(2, 0, dtype=torch.bool)
    assert stable.logsumexp(x).tolist() == [-INF, -INF]
    assert stable.logsumexp(x, keepdim=True).tolist() == [[-INF], [-INF]]
    for found in (
        stable.clipped_softmax(x),
        stable.softmax(x, temperature=0.5),
        stable.log_softmax(x, temperature=torch.tensor(0.5)),
        stable.masked_softmax(x, keep),
        stable.masked_log_softmax(x, keep),
    ):
        assert found.shape == (2, 0)
    assert stable.clipped_softmax(torch.tensor(3.0)).item() == 1


@pytest.mark.parametrize("function", [stable.masked_softmax, stable.masked_log_softmax])
def test_an_unknown_answer_to_empty_rows_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match="'zeros', 'uniform', 'raise', got 'foo'"):
        function(torch.ones(2), torch.ones(2, dtype=torch.bool), empty="foo")


def test_an_unknown_answer_to_rows_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="'raise', 'uniform', got 'foo'"):
        stable.safe_categorical(torch.ones(2), empty="foo")  # type: ignore[arg-type]
