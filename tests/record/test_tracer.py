"""The tracer is right for everything torch does to tensors."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import whynan
from tests.harness import besides
from whynan.errors import StopRun
from whynan.model import Anomaly

INF = float("inf")


def anomalies_of(program: Callable[[], object]) -> tuple[Anomaly, ...]:
    with whynan.trace() as trace:
        kept = program()  # a gradient counts while somebody can still use it
    del kept
    diagnosis = whynan.diagnose(trace)
    assert besides(diagnosis.notes) == []
    return diagnosis.anomalies


def origin_of(program: Callable[[], object]) -> tuple[str, str, str]:
    """(source line, mechanism, phase) of the first anomaly."""
    found = anomalies_of(program)
    assert found, "no harm seen"
    site = found[0].origin.site
    assert site is not None
    assert site.file == inspect.getfile(program)
    return site.source, found[0].finding.mechanism, found[0].origin.phase


def line_with(text: str, program: Callable[[], object]) -> str:
    lines = [line.strip() for line in inspect.getsource(program).splitlines()]
    return next(line for line in lines if text in line)


def expect(
    program: Callable[[], object], text: str, mechanism: str, phase: str = "forward"
) -> None:
    assert origin_of(program) == (line_with(text, program), mechanism, phase)


def test_views_share_the_identity_of_their_storage() -> None:
    def program() -> object:
        x = torch.ones(4, 6)
        column = x.t()[2:4].unflatten(1, (2, 2)).transpose(0, 1)
        column.select(0, 1).zero_()
        y = (1 / x).log()
        return y.view(-1)[::3].sum().item()

    expect(program, "1 / x", "division_by_zero")


def test_in_place_operations_keep_the_operand_that_explains_them() -> None:
    def program() -> object:
        x = torch.tensor([2.0, 0.0, 3.0])
        x.log_()
        x.add_(1).mul_(2)
        return x.sum().item()

    expect(program, "x.log_()", "log_nonpositive")


def test_a_write_through_a_slice_is_found() -> None:
    def program() -> object:
        out = torch.zeros(3, 4)
        out[:, 0] = 5.0
        out[1, 2:] = torch.sqrt(torch.tensor([4.0, -1.0]))
        return out.sum(dim=1).tolist()

    expect(program, "torch.sqrt", "sqrt_negative")


def test_out_argument() -> None:
    def program() -> object:
        out = torch.empty(3)
        torch.div(torch.ones(3), torch.tensor([1.0, 0.0, 2.0]), out=out)
        return out.tolist()

    expect(program, "torch.div", "division_by_zero")


def test_list_outputs_and_foreach() -> None:
    def program() -> object:
        parts = list(torch.arange(4.0).split(2))
        roots = torch._foreach_reciprocal(parts)
        return torch.cat(roots).tolist()

    expect(program, "_foreach_reciprocal", "division_by_zero")


@pytest.mark.filterwarnings("ignore:std_mean")
def test_several_outputs() -> None:
    def program() -> object:
        spread, mean = torch.std_mean(torch.ones(3, 1), dim=1)
        mean.tolist()
        return spread.tolist()

    expect(program, "std_mean", "empty_reduction")


def test_broadcasting_finds_the_operand_element() -> None:
    x = torch.ones(5, 3)
    scale = torch.tensor([1.0, 0.0, 2.0])
    found = anomalies_of(lambda: (x / scale).tolist())[0]
    divisor = found.origin.operand("other")
    assert divisor is not None
    assert (divisor.index, divisor.value) == ((1,), 0.0)
    assert found.origin.outputs[0].index == (0, 1)


def test_cast_overflow_names_both_types() -> None:
    def program() -> object:
        x = torch.full((3,), 1e5)
        half = x.half()
        return half.tolist()

    expect(program, "x.half()", "overflow")
    with whynan.trace() as trace:
        kept = program()
    assert kept
    causes = [c.code for c in whynan.diagnose(trace).anomalies[0].finding.causes]
    assert causes == ["low_precision"]


def test_type_promotion_and_bfloat16_and_complex() -> None:
    def program() -> object:
        z = torch.complex(torch.zeros(2), torch.zeros(2))
        ratio = torch.ones(2) / z
        return ratio.abs().tolist()

    assert origin_of(program)[0] == line_with("ratio =", program)


@pytest.mark.filterwarnings("ignore")
def test_integer_empty_sparse_and_quantized_tensors_pass_unharmed() -> None:
    def program() -> object:
        torch.arange(5).cumsum(0).tolist()
        torch.empty(0, 3).sum().item()
        sparse = torch.eye(3).to_sparse()
        (sparse @ torch.ones(3, 2)).tolist()
        return torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.quint8).dequantize().tolist()

    assert anomalies_of(program) == ()


def test_tensor_subclass_is_unpacked() -> None:
    class Tagged(torch.Tensor):
        pass

    def program() -> object:
        x = torch.zeros(2).as_subclass(Tagged)
        y = x.reciprocal()
        return y.tolist()

    expect(program, "x.reciprocal()", "division_by_zero")


def test_custom_autograd_function_backward_is_the_users_own_line() -> None:
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.abs()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return grad * x / x.abs()

    def program() -> torch.Tensor:
        x = torch.zeros(2, requires_grad=True)
        Careless.apply(x).sum().backward()
        return x

    source, mechanism, phase = origin_of(program)
    assert (source, mechanism, phase) == (
        "return grad * x / x.abs()",
        "division_by_zero",
        "backward",
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant: bool) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()

    def program() -> torch.Tensor:
        x = torch.zeros(3, requires_grad=True)
        y = checkpoint(block, x, use_reentrant=reentrant)
        y.sum().backward()
        return x

    assert origin_of(program) == ("return x.sqrt()", "gradient_singularity", "backward")


def test_double_backward_is_mapped_to_the_first_forward_line() -> None:
    def program() -> torch.Tensor:
        x = torch.zeros(3, requires_grad=True)
        y = (x**3).sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        penalty = slope.pow(0.5).sum()
        penalty.backward()
        return x

    expect(program, "slope.pow(0.5)", "gradient_singularity", "backward")


def test_functional_transforms() -> None:
    def program() -> object:
        def energy(r: torch.Tensor) -> torch.Tensor:
            return r.square().sum().sqrt()

        return torch.func.vmap(torch.func.grad(energy))(torch.zeros(2, 3)).tolist()

    source, mechanism, _ = origin_of(program)
    assert (source, mechanism) == ("return r.square().sum().sqrt()", "gradient_singularity")


def test_no_grad_and_inference_mode() -> None:
    def program() -> object:
        with torch.inference_mode():
            y = torch.acos(torch.tensor([1.5]))
            return y.tolist()

    expect(program, "torch.acos", "invalid_domain")


def test_a_hook_that_spoils_the_gradient() -> None:
    def program() -> torch.Tensor:
        w = torch.ones(2, requires_grad=True)
        h = w * 2
        h.register_hook(lambda grad: grad / (grad - grad))
        h.sum().backward()
        return w

    expect(program, "register_hook", "division_by_zero", "backward")


def test_gradient_accumulation_and_retain_graph() -> None:
    def program() -> torch.Tensor:
        w = torch.ones(2, dtype=torch.float16, requires_grad=True)
        y = w * torch.tensor([40000.0, 1.0], dtype=torch.float16)
        y.backward(torch.ones_like(y), retain_graph=True)
        y.backward(2 * torch.ones_like(y) / 2)
        return w

    expect(program, "y.backward(2", "overflow", "backward")


def test_fused_and_foreach_optimizers() -> None:
    for options in ({"fused": True}, {"foreach": True}, {"foreach": False}):

        def program(options: dict[str, bool] = options) -> None:
            w = nn.Parameter(torch.ones(3))
            optimizer = torch.optim.Adam([w], lr=0.1, **options)  # type: ignore[arg-type]
            (w * 1e30).sum().backward()
            optimizer.step()

        source, mechanism, phase = origin_of(program)
        assert (source, mechanism, phase) == ("optimizer.step()", "overflow", "optimizer")


def test_origin_in_another_thread() -> None:
    def work(kept: list[object]) -> None:
        kept.append(torch.log(torch.zeros(2)).tolist())

    def program() -> object:
        kept: list[object] = []
        thread = threading.Thread(target=work, args=(kept,))
        thread.start()
        thread.join()
        return kept

    assert origin_of(program) == (
        "kept.append(torch.log(torch.zeros(2)).tolist())",
        "log_nonpositive",
        "forward",
    )


def test_module_path_in_forward_and_backward() -> None:
    class Head(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().sum(-1).sqrt()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Identity(), Head()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    def program() -> torch.Tensor:
        x = torch.zeros(2, 3, requires_grad=True)
        Net()(x).sum().backward()
        return x

    found = anomalies_of(program)[0]
    assert found.origin.phase == "backward"
    assert found.origin.module == "blocks.1"


def test_columns_are_exact() -> None:
    def program() -> object:
        x = torch.zeros(2)
        return ((x + 1) * (1 / x)).tolist()

    site = anomalies_of(program)[0].origin.site
    assert site is not None
    assert site.expression == "1 / x"
    assert site.column is not None
    assert site.end_column is not None
    source = inspect.getsource(program).splitlines()[2]
    assert source[site.column : site.end_column] == "1 / x"


def test_library_internal_origin_is_the_users_call() -> None:
    def program() -> None:
        logits = torch.tensor([[0.0, -INF]])
        loss = F.cross_entropy(logits, torch.tensor([1]))
        loss.item()
        loss.requires_grad_().backward()

    source, mechanism, _ = origin_of(program)
    assert source == line_with("cross_entropy", program)
    assert mechanism == "log_nonpositive"


def test_masks_and_cleaned_values_stay_silent() -> None:
    def program() -> object:
        scores = torch.zeros(2, 4).masked_fill(torch.tensor([[True, False, False, True]]), -INF)
        scores.softmax(-1).tolist()
        best = torch.tensor(INF)
        print(best, torch.full((2,), -INF))
        torch.nan_to_num(torch.zeros(2) / 0).tolist()
        (1 / (1 + torch.exp(torch.tensor([-100.0, 100.0])))).tolist()
        x = torch.empty(4)
        x[:] = 1.0
        return x.tolist()

    assert anomalies_of(program) == ()


def test_an_absorbed_overflow_that_is_wrong_is_harm() -> None:
    def program() -> None:
        x = torch.full((4,), 1e25, requires_grad=True)
        normed = x * torch.rsqrt(x.square().mean())
        (normed - 1).square().mean().backward()

    found = anomalies_of(program)[0]
    assert found.finding.mechanism == "overflow"
    assert found.evidence.effect == "loss is 1 where float64 gives 0"
    assert found.origin.site is not None
    assert found.origin.site.expression == "x.square()"


def test_a_mask_written_element_by_element_is_not_the_origin() -> None:
    def program() -> None:
        closed = -INF
        scores = torch.randn(2, 3, requires_grad=True) * 1.0
        for column in range(3):
            scores[1, column] = closed
        scores.softmax(-1).sum().backward()

    expect(program, "softmax(-1)", "all_masked_softmax")


def test_inference_mode_is_recorded_as_finely_as_any_other() -> None:
    def program() -> object:
        with torch.inference_mode():
            x = torch.zeros(2, 4)
            share = x / x.sum(-1, keepdim=True)
            p = F.linear(share, torch.ones(3, 4)).double().reshape(3, 2).softmax(-1)
            return p.sum().item()

    expect(program, "x / x.sum", "division_by_zero")


def test_a_thread_that_is_told_to_stop_in_an_update_ends_quietly() -> None:
    errors: list[object] = []
    before, threading.excepthook = threading.excepthook, lambda args: errors.append(args.exc_value)

    def leave(*_: object) -> None:
        raise StopRun

    def train() -> None:
        w = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        optimizer.register_step_pre_hook(leave)  # after whynan's own, which took the recorder off
        w.sum().backward()
        optimizer.step()

    try:
        with whynan.trace():
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
    finally:
        threading.excepthook = before
    assert errors == []


def test_a_model_without_memory_is_passed_over() -> None:
    """As made by `torch.device("meta")` and `init_empty_weights`: nothing is there to look at."""

    def program() -> object:
        with torch.device("meta"):
            first = nn.Linear(4, 4)
            empty = nn.Sequential(first, *[nn.Linear(4, 4) for _ in range(60)])
        first.weight.data.mul_(2).add_(1)
        empty(torch.ones(2, 4, device="meta"))
        return torch.log(torch.zeros(3)).sum().item()

    expect(program, "torch.log", "log_nonpositive", "forward")


def test_a_logarithm_in_place_whose_result_was_overwritten_is_not_called_an_overflow() -> None:
    def program() -> object:
        buffer = torch.rand(400_000) + 0.1
        buffer[1234] = 0
        buffer.log_()
        buffer.mul_(-1).add_(0.5)
        return buffer.mean().item()

    expect(program, "log_()", "log_nonpositive")


def test_a_root_in_a_hand_written_update_is_not_called_a_mean_square() -> None:
    def program() -> None:
        weight = torch.ones(3, requires_grad=True)
        average = torch.zeros(3)
        for _ in range(3):
            (weight * 1e-4).sum().backward()
            with torch.no_grad():
                assert weight.grad is not None
                average.mul_(0.9).addcmul_(weight.grad, weight.grad, value=0.1)
                average.sub_(1e-6)
                weight.addcdiv_(weight.grad, average.sqrt() + 1e-8, value=-1e-3)
            weight.grad = None

    (anomaly, *_) = anomalies_of(program)
    assert anomaly.finding.mechanism == "sqrt_negative"
    assert "cancellation" not in [cause.code for cause in anomaly.finding.causes]


def test_a_product_whose_operands_are_gone_is_not_called_opaque_inside() -> None:
    def program() -> object:
        y = torch.rand(400_000) + 1
        y.mul_(1e38).mul_(10)
        y.sub_(y.clone())
        return y.sum().item()

    (anomaly,) = anomalies_of(program)
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source == line_with("mul_(1e38)", program)
    assert "cannot be looked into" not in anomaly.finding.headline
    assert "plain PyTorch" not in " ".join(fix.title for fix in anomaly.finding.fixes)
