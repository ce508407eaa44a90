"""`whynan.watch` around a user's own loop."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import whynan
from whynan.run.blocks import Silent
from whynan.watching.history import History
from whynan.watching.plan import Plan
from whynan.watching.watch import Watch

OWNERS: list[tuple[Any, str]] = [
    (torch.optim.Optimizer, "__init__"), (torch.optim.SGD, "step"), (torch.optim.Adam, "step"),
    (torch.autograd, "_engine_run_backward"), (torch.nn.utils, "clip_grad_norm_"),
    (torch.Tensor, "item"), (torch.Tensor, "numpy"), (torch.Tensor, "__float__"),
    (torch.Tensor, "__repr__"), (torch.amp.GradScaler, "step"), (torch.amp.GradScaler, "scale"),
    (_BaseDataLoaderIter, "__next__"), (_BaseDataLoaderIter, "_next_index"),
    (torch.no_grad, "__enter__"), (torch.no_grad, "__exit__"), (torch.inference_mode, "__enter__"),
    (lr_scheduler.LRScheduler, "step"), (swa_utils.AveragedModel, "update_parameters"),
    (nn.Module, "register_buffer"), (nn.Module, "__call__"), (torch, "compile"), (np.random, "default_rng"),
]  # fmt: skip


def state_of_torch() -> list[Any]:
    found: list[Any] = [vars(owner).get(name) for owner, name in OWNERS]
    found += [dict(nn_module._global_forward_hooks), dict(nn_module._global_forward_pre_hooks)]
    return found


def parts(bad_row: int | None = 50) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    x = torch.rand(96, 4) + 0.1
    if bad_row is not None:
        x[bad_row] = 0
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, DataLoader(TensorDataset(x), batch_size=4, shuffle=True)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    for (x,) in loader:
        loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_stop_raises_with_the_diagnosis_of_the_step() -> None:
    model, optimizer, loader = parts()
    with pytest.raises(whynan.AnomalyFound) as caught, whynan.watch(model, optimizer):
        train(model, optimizer, loader)
    diagnosis = caught.value.diagnosis
    origin = diagnosis.anomalies[0].origin
    assert diagnosis.anomalies[0].finding.mechanism == "division_by_zero"
    assert origin.site is not None
    assert origin.site.source == "loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()"
    assert diagnosis.reproduced in ("rewind", "live")
    assert "divided 0 by" in str(caught.value)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_skip_goes_on_and_lists_what_it_skipped() -> None:
    model, optimizer, loader = parts()
    shown = io.StringIO()
    with redirect_stderr(shown), whynan.watch(model, optimizer, on_anomaly="skip") as watching:
        for _ in range(3):
            train(model, optimizer, loader)
    assert len(watching.skipped) == 3
    assert shown.getvalue().count("error[N010]") == 1
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_a_healthy_block_is_silent_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, optimizer, loader = parts(bad_row=None)
    torch.optim.Adam(model.parameters())
    before = state_of_torch()
    with whynan.watch(model, optimizer) as watching:
        assert state_of_torch() != before
        train(model, optimizer, loader)
    assert watching.diagnosis is None
    assert state_of_torch() == before
    assert capsys.readouterr() == ("", "")


def test_the_users_own_exception_passes_through_and_leaves_nothing_behind() -> None:
    model, optimizer, _ = parts()
    before = state_of_torch()
    with pytest.raises(KeyError, match="mine"), whynan.watch(model, optimizer):
        raise KeyError("mine")
    assert state_of_torch() == before


def test_a_wrong_policy_is_refused() -> None:
    with (
        pytest.raises(whynan.WhynanError, match="stop, skip or warn"),
        whynan.watch(
            on_anomaly="ignore"  # type: ignore[arg-type]
        ),
    ):
        pass


def test_the_layers_of_two_models_are_kept_apart() -> None:
    """A generator and its discriminator, which call their layers by the same names."""

    class Generator(torch.nn.Sequential): ...

    class Critic(torch.nn.Sequential): ...

    torch.manual_seed(0)
    nets = Generator(torch.nn.Linear(2, 2)), Critic(torch.nn.Linear(2, 2))
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
    guard = Watch(Plan(), Silent())
    guard.start(nets, optimizers)
    try:
        for net, optimizer in zip(nets, optimizers, strict=True):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        layers = [row.layers for row in guard.recording().history]
    finally:
        guard.stop(None)
    names = [sorted(row or {}) for row in layers]
    assert names == [
        ["Generator.0.bias", "Generator.0.weight"],
        ["Critic.0.bias", "Critic.0.weight"],
    ]


def test_a_long_run_keeps_some_of_its_past_and_all_of_its_end() -> None:
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=1e-6)
    history = History()
    for step in range(30_000):
        w.grad = torch.ones(2)
        if history.is_sampled(step):
            history.sample(step, optimizer, [])
            history.measure_update(step)
        history.gradients([1.0])
        history.row(step, 0.5, 0.1, None)
    rows = history.with_layers(history.rows())
    steps = [row.step for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-500:] == list(range(29_500, 30_000))
    assert len(rows) < 1000
    gaps = [b - a for a, b in pairwise(steps)]
    assert max(gaps) <= 400
    assert sum(row.layers is not None for row in rows) > 60
    measured = [row.step for row in rows if row.update_ratio is not None]
    assert measured[0] < 5
    assert len(measured) > 60


def watched_loop(*, swallows: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(80, 4)
    x[50] = 0
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with whynan.watch(net):
        for (rows,) in DataLoader(TensorDataset(x), batch_size=4):
            try:
                loss = net(rows / rows.norm(dim=-1, keepdim=True)).square().mean()  # HERE
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            except:  # noqa: E722  # what some loops do
                if not swallows:
                    raise


@pytest.mark.parametrize("swallows", [False, True], ids=["plain", "bare except"])
def test_a_watch_finds_the_optimizers_of_its_model_and_raises_at_its_end(swallows: bool) -> None:
    with pytest.raises(whynan.AnomalyFound) as raised:
        watched_loop(swallows=swallows)
    first = raised.value.diagnosis.anomalies[0]
    assert first.origin.step == 12
    assert first.origin.site is not None
    assert first.origin.site.source.endswith("# HERE")


@pytest.mark.parametrize(
    "how", [{"dtype": torch.float64}, {"device": "cpu", "dtype": torch.bfloat16}]
)
def test_a_model_may_be_cast_by_keywords_while_the_guard_looks(how: dict[str, Any]) -> None:
    model, optimizer, loader = parts(bad_row=None)
    with whynan.watch(model, optimizer):
        train(model, optimizer, loader)
        assert model.to(**how) is model
    assert next(model.parameters()).dtype is how["dtype"]


def test_what_goes_wrong_only_when_compiled_is_not_called_unrepeatable() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def wrong(graph: Any, _inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            return tuple(x * torch.nan if x.abs().max() > 3 else x for x in graph(*args))

        return call

    compiled = torch.compile(lambda x: (x @ model.weight).sin() + x, backend=wrong)
    with redirect_stderr(io.StringIO()) as told, whynan.watch(model, optimizer, on_anomaly="warn"):
        for scale in [1, 1, 1, 1, 1, 1, 4]:
            optimizer.zero_grad()
            compiled(torch.ones(8, 4) * scale).square().mean().backward()
            optimizer.step()
    words = " ".join(told.getvalue().split())
    assert "recorded in eager mode, which did not show it" in words
    assert "`whynan run` on the program compares the two" in words
    assert "not tested yet" not in words
