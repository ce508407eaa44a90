"""What watching does on a device: how often it waits, what it keeps there, what it leaves alone."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.harness import ForkServer
from tests.toy import toy
from tests.toy.alone import alone
from whynan.run.blocks import Silent
from whynan.seam.randomness import Randomness
from whynan.seam.stats import fetched, has_nonfinite, nonfinite_indices, norms, worst
from whynan.watching.plan import Plan
from whynan.watching.watch import Watch


class Training:
    """A small network and its optimizer."""

    def __init__(self, *, clips: bool = False) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)
        ).to("toy")
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.rows = torch.randn(32, 8, device="toy")
        self.clips = clips

    def step(self) -> None:
        loss = self.model(self.rows).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.clips:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        return [p.detach().cpu() for p in self.model.parameters()]


def watched(training: Training, plan: Plan, steps: int, before: int = 6) -> toy.Counts:
    """What the last so many steps add; the first ones measure more."""
    watch = Watch(plan, Silent())
    watch.start(models=[training.model], optimizers=[training.optimizer])
    try:
        for _ in range(before):
            training.step()
        with toy.counting() as counts:
            for _ in range(steps):
                training.step()
    finally:
        watch.stop(None)
    return counts


def plain(training: Training, steps: int, before: int = 6) -> toy.Counts:
    for _ in range(before):
        training.step()
    with toy.counting() as counts:
        for _ in range(steps):
            training.step()
    return counts


@alone
def test_a_guarded_step_waits_once_for_the_device() -> None:
    for clips in (False, True):
        alone_counts = plain(Training(clips=clips), 10)
        counts = watched(Training(clips=clips), Plan(live_steps=0), 10)
        assert alone_counts.syncs == 0
        assert counts.syncs == 10
        # norms, some of them right after backward, their list, and a copy of the running statistics
        assert counts.kernels - alone_counts.kernels <= 10 * 4


class Sign(torch.optim.Optimizer):
    """Nobody knows whether its update may overflow."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it takes no closure
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


@alone
def test_an_unknown_optimizer_costs_no_second_wait() -> None:
    training = Training()
    training.optimizer = Sign(training.model.parameters(), {"lr": 1e-3})
    assert watched(training, Plan(live_steps=0), 10).syncs == 10


@alone
def test_a_recorded_step_waits_a_few_times_however_many_operations_it_has() -> None:
    counts = watched(Training(), Plan(always_live=True), 10)
    assert 0 < counts.syncs <= 10 * 5


@alone
def test_watching_changes_no_weight() -> None:
    expected, guarded, recorded = Training(), Training(), Training()
    plain(expected, 10)
    watched(guarded, Plan(live_steps=3), 10)
    watched(recorded, Plan(always_live=True), 10)
    for training in (guarded, recorded):
        assert all(map(torch.equal, training.weights(), expected.weights()))


@alone
def test_nothing_of_a_healthy_step_is_kept_on_the_device() -> None:
    training = Training()
    training.step()
    watch = Watch(Plan(always_live=True), Silent())
    watch.start(models=[training.model], optimizers=[training.optimizer])
    training.step()
    before = toy.counts().bytes
    gc.disable()  # nor in circles, which would be there until the collector comes
    for _ in range(5):
        training.step()
    assert toy.counts().bytes == before
    watch.stop(None)


@alone
def test_random_states_of_every_device_come_back() -> None:
    randomness = Randomness()
    saved = randomness.save()
    first = [torch.rand(3, device=f"toy:{i}").cpu() for i in (0, 1)]
    randomness.restore(saved)
    again = [torch.rand(3, device=f"toy:{i}").cpu() for i in (0, 1)]
    assert all(map(torch.equal, first, again))


@alone
def test_numbers_of_several_devices_and_types_come_with_one_wait() -> None:
    kinds = [
        ("toy:0", torch.float32),
        ("toy:1", torch.float16),
        ("cpu", torch.float64),
        ("toy:0", torch.bfloat16),
    ]
    tensors = [torch.full((4,), 2.0, dtype=kind, device=device) for device, kind in kinds]
    tensors.append(torch.full((4,), 5e4, dtype=torch.float16, device="toy:1"))
    with toy.counting() as counts:
        assert norms(tensors) == [4.0, 4.0, 4.0, 4.0, 2 * float(tensors[-1][0].cpu())]
    assert counts.syncs <= 2  # one of them is the test's own


@alone
def test_the_worst_of_a_tensor_is_non_finite_only_if_an_element_is() -> None:
    large = torch.full((3,), 3e38, device="toy")
    questions = [
        worst(large),
        worst(torch.complex(large, large)),
        worst(large * 2),
        worst(large[:0]),
    ]
    assert questions[3] is None
    found = fetched([q for q in questions if q is not None])
    assert [v - v == 0 for v in found] == [True, True, False]
    assert not has_nonfinite(large)


@alone
def test_a_default_device_does_not_take_whynans_own_small_tensors() -> None:
    torch.set_default_device("toy")
    bad = torch.tensor([1.0, torch.nan, 2.0, torch.inf], device="cpu")
    with toy.counting() as counts:
        assert nonfinite_indices(bad, 4) == [(1,), (3,)]
    assert counts.kernels == counts.from_host == 0


PROGRAM = """\
import torch
from tests.toy import toy

torch.manual_seed(0)
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 3)


def train(x):
    loss = net(x).square().sum(1).sqrt().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


"""


def test_a_captured_graph_is_left_alone_and_named(tmp_path: Path, programs: ForkServer) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + "for i in range(20):\n    if i in (2, 15):\n"
        "        with toy.capturing(), toy.counting() as counts:\n            train(x)\n"
        "        print(counts.kernels, counts.syncs)\n    else:\n        train(x)\n"
        "x[1] = float('nan')\ntrain(x)\n")  # fmt: skip
    alone = programs.run(script, traced=False, device="toy")
    assert alone.code == 0, alone.stderr
    for mode in ("auto", "trace"):
        found = programs.run(script, mode=mode, device="toy")
        assert found.stdout == alone.stdout
        assert found.report is not None
        assert found.code == 3
        assert any("captured as a graph" in n and "line 11" in n for n in found.report["notes"])


def test_without_float64_the_cpu_tells_what_an_overflow_should_have_been(
    tmp_path: Path, programs: ForkServer
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from tests.toy import toy; toy.without_doubles()\n" + PROGRAM + "for i in range(3):\n"
        "    (net(x).sum() * 1e25).backward()\n"
        "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    found = programs.run(script, mode="trace", device="toy")
    assert found.report is not None
    (first,) = found.report["anomalies"][:1]
    assert (first["location"]["line"], first["mechanism"]) == (20, "overflow"), found.stderr
    assert found.report["notes"] == []


def test_a_model_on_two_devices(tmp_path: Path, programs: ForkServer) -> None:
    script = tmp_path / "train.py"
    script.write_text("""\
import torch

torch.manual_seed(0)
first = torch.nn.Linear(4, 8).to("toy:0")
second = torch.nn.Linear(8, 1).to("toy:1")
bias = torch.nn.Parameter(torch.zeros(1, device="cpu"))  # held by the host
parameters = [*first.parameters(), *second.parameters(), bias]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
for step in range(14):
    x = torch.randn(16, 4, device="toy:0")
    hidden = first(x).relu().to("toy:1")
    if step == 12:
        hidden = hidden * 0
    scale = hidden.square().sum(1).sqrt()
    loss = (second(hidden).squeeze(1) + scale).mean().cpu() + bias.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")
    for mode in ("auto", "trace"):
        found = programs.run(script, mode=mode, device="toy")
        assert found.report is not None, found.stderr
        first = found.report["anomalies"][0]
        seen = (first["location"]["line"], first["phase"], first["step"], first["mechanism"])
        assert seen == (14, "backward", 12, "gradient_singularity"), found.stderr


OWN = """\
import torch


class Unit(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad / p.grad.norm()


torch.manual_seed(0)
net = torch.nn.Linear(5, 2).to("toy")
optimizer = Unit(net.parameters(), 0.01)
for step in range(STEPS):
    x = torch.randn(4, 5, device="toy")
    loss = (net(x) * (step != 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("steps", [9, 12])  # the update that spoils all is the last one, or not
def test_an_update_that_is_read_later_is_told_with_its_own_step(
    steps: int, tmp_path: Path, programs: ForkServer
) -> None:
    script = tmp_path / "train.py"
    script.write_text(OWN.replace("STEPS", str(steps)))
    found = programs.run(script, mode="auto", device="toy")
    assert found.report is not None, found.stderr
    first = found.report["anomalies"][0]
    seen = (first["location"]["line"], first["phase"], first["step"], first["mechanism"])
    assert seen == (12, "optimizer", 8, "division_by_zero"), found.stderr
