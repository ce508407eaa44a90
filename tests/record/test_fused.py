"""An LSTM is recorded as a whole while it is healthy, and in its parts when it is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import whynan
from tests.record.test_tracer import anomalies_of, expect, line_with


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.lstm(x)[0]
        return hidden


def test_names_a_weight_that_came_in_bad() -> None:
    def program() -> object:
        lstm = nn.LSTM(3, 4, num_layers=2)
        with torch.no_grad():
            lstm.all_weights[1][1].copy_(torch.as_tensor([[float("nan")] * 4] * 16))
        return lstm(torch.randn(5, 2, 3))[0].sum().item()

    (anomaly,) = anomalies_of(program)
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source == line_with("].copy_", program)


def test_its_layers_are_on_the_path_when_a_bad_value_goes_through() -> None:
    def program() -> object:
        lstm = nn.LSTM(3, 4, num_layers=2)
        x = torch.ones(5, 2, 3)
        x = (x - 1) / (x - 1)
        return lstm(x)[0].sum().item()

    (anomaly,) = anomalies_of(program)
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source == line_with("/ (x", program)
    assert "mkldnn_rnn_layer" in " ".join(stage.op for stage in anomaly.evidence.path)


def test_a_gradient_that_overflows_inside_is_named_at_the_call() -> None:
    def program() -> list[torch.Tensor]:
        model = nn.Sequential()
        model.add_module("lstm", nn.LSTM(3, 4, num_layers=2))
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(40.0 if p.dim() == 2 else 0.0)
        hidden, _ = model(torch.zeros(30, 1, 3))  # each time step multiplies the gradient by 40
        hidden[-1].sum().backward()
        return list(model.parameters())

    anomalies = anomalies_of(program)
    origin = anomalies[0].origin
    assert origin.site is not None
    assert (origin.site.source, origin.phase) == (line_with("= model(", program), "backward")
    assert origin.module == "lstm"
    assert "mkldnn_rnn_layer_backward" in origin.op


def test_leaves_that_only_an_lstm_has_are_known() -> None:
    def program() -> None:
        lstm = nn.LSTM(3, 4)
        x = torch.randn(5, 2, 3)
        for _ in range(3):
            lstm(x)[0].sum().backward()
            with torch.no_grad():
                for p in lstm.parameters():
                    assert p.grad is not None
                    p.sub_(1e38 * 1e3 * p.grad)
                    p.grad = None

    (anomaly, *_) = anomalies_of(program)
    assert anomaly.evidence.sink == "parameter"
    assert anomaly.origin.step == 0
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source == line_with("p.sub_", program)


def test_a_hook_of_the_program_is_recorded() -> None:
    def program() -> object:
        def rescale(module: Any, args: Any, output: Any) -> Any:
            return output[0] / torch.zeros(()), output[1]

        lstm = nn.LSTM(3, 4)
        lstm.register_forward_hook(rescale)
        return lstm(torch.ones(5, 2, 3))[0].sum().item()

    expect(program, "/ torch.zeros", "division_by_zero")


@pytest.mark.parametrize("bad", [False, True])
def test_a_mode_of_the_program_sees_it_once(bad: bool) -> None:
    class Count(TorchFunctionMode):
        calls = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.calls += getattr(func, "__name__", "") == "lstm"
            return func(*args, **(kwargs or {}))

    lstm, count = nn.LSTM(3, 4), Count()
    with whynan.trace(), count:
        lstm(torch.full((5, 2, 3), float("nan") if bad else 1.0))
    assert count.calls == 1


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"batch_first": True, "bias": False}]
)
def test_results_are_the_same(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = nn.LSTM(3, 4, num_layers=2, **options)
    traced = copy.deepcopy(plain)
    x = torch.randn(5, 2, 3)
    with whynan.trace() as trace:
        hidden, state = traced(x)
        (hidden.sum() + state[0].sum()).backward()
    expected, expected_state = plain(x)
    (expected.sum() + expected_state[0].sum()).backward()
    assert torch.equal(hidden, expected)
    for mine, right in zip(traced.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, right.grad)  # type: ignore[arg-type]  # they have one
    assert not whynan.diagnose(trace).anomalies


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_scripted_lstm_still_compiles() -> None:
    with whynan.trace():
        scripted = torch.jit.script(Encoder())
        hidden = scripted(torch.ones(5, 2, 3))
    assert hidden.shape == (5, 2, 4)


def test_a_saved_value_that_was_bad_before_the_recording_is_named_when_it_does_harm() -> None:
    weight = nn.Parameter(torch.tensor([100.0, 1.0]))
    loss = torch.exp(weight)[1] * 1.0  # exp(100) is infinite, and not in the loss
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def program() -> None:
        loss.backward()
        optimizer.step()

    (anomaly,) = anomalies_of(program)
    assert anomaly.finding.mechanism == "nonfinite_data"
    assert anomaly.origin.value == float("inf")


def test_a_cell_state_that_was_given_bad_is_followed_to_where_it_does_harm() -> None:
    def program() -> object:
        lstm = nn.LSTM(3, 4)
        with torch.no_grad():
            for p in lstm.parameters():
                p.fill_(40.0)  # every gate is open
        start = torch.full((1, 2, 4), 1e38) * 10
        state = (torch.zeros(1, 2, 4), start)
        _, (_, cell) = lstm(torch.ones(5, 2, 3), state)
        return (cell * 2).sum().item()

    expect(program, "* 10", "overflow", "data")


def test_an_infinity_that_the_lstm_absorbs_is_named_when_its_gradient_is_bad() -> None:
    def program() -> None:
        torch.manual_seed(0)
        lstm = nn.LSTM(3, 4, batch_first=True)
        optimizer = torch.optim.SGD(lstm.parameters(), lr=0.1)
        price = torch.rand(2, 5, 3) + 1
        price[1, 4, 2] = 0
        feature = 1 / price
        lstm(feature)[0].sum().backward()
        optimizer.step()

    (anomaly, *_) = anomalies_of(program)
    assert anomaly.finding.mechanism == "division_by_zero"
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source == line_with("1 / price", program)


def test_a_forward_that_the_program_replaced_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    original = nn.LSTM.forward
    calls = []

    def forward(module: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        hidden: torch.Tensor = original(module, x)[0]
        return hidden

    monkeypatch.setattr(nn.LSTM, "forward", forward)
    with whynan.trace():
        hidden = nn.LSTM(3, 4)(torch.full((2, 5, 3), float("nan")))
    assert hidden.shape == (2, 5, 4)
    assert len(calls) == 1


def test_hooks_for_saved_tensors_run_once() -> None:
    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor.shape)
        return tensor

    def run() -> int:
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            nn.LSTM(3, 4)(torch.full((2, 5, 3), float("nan")))
        return len(packed)

    expected = run()
    with whynan.trace():
        assert run() == expected


def test_a_mode_of_the_program_around_the_recording_sees_it_once() -> None:
    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.calls += "mkldnn_rnn_layer" in str(func)
            return func(*args, **(kwargs or {}))

    count = Count()
    with count, whynan.trace():
        nn.LSTM(3, 4)(torch.full((5, 2, 3), float("nan")))
    assert count.calls == 1
