"""TensorBoard reads back what was measured, and the report at the failing step."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import whynan
from tests.builders import failing, recording
from whynan.model import HistoryRow
from whynan.report import tensorboard
from whynan.report.event_file import EventFile
from whynan.watching.layers import spreads

LR = 0.125  # exact in float32
ROWS = (
    HistoryRow(step=0, loss=2.5, lr=LR, layers={"fc.weight": (0.5, 3.0)}),
    HistoryRow(step=1, loss=math.nan, grad_max=math.inf),
)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"histograms": 0})  # all of them
    events.Reload()
    return events


def scalars(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    """Scalars reach the accumulator as tensors, the way TensorBoard itself migrates them."""
    return [(e.step, e.value) for e in events.Scalars(tag)]


def test_scalars_of_every_step_are_there(tmp_path: Path) -> None:
    tensorboard.write(failing(history=ROWS), tmp_path / "runs")
    events = read(tmp_path / "runs")
    assert scalars(events, "whynan/lr") == [(0, LR)]
    assert scalars(events, "whynan/grad_max") == [(1, math.inf)]
    steps, values = zip(*scalars(events, "whynan/loss"), strict=True)
    assert (steps, values[0], math.isnan(values[1])) == ((0, 1), 2.5, True)
    assert scalars(events, "whynan.gradient/fc.weight") == [(0, 0.5)]
    assert scalars(events, "whynan.weight/fc.weight") == [(0, 3.0)]


def test_the_report_is_text_at_the_failing_step(tmp_path: Path) -> None:
    result = failing(history=())
    tensorboard.write(result, tmp_path)
    events = read(tmp_path)
    [tag] = events.Tags()["tensors"]
    [event] = events.Tensors(tag)
    assert tag == "whynan/N012"
    assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    assert event.step == 2
    assert result.anomalies[0].finding.headline[:20] in event.tensor_proto.string_val[0].decode()


def test_a_healthy_run_has_no_text(tmp_path: Path) -> None:
    tensorboard.write(failing(anomalies=(), history=ROWS), tmp_path)
    assert read(tmp_path).Tags()["tensors"] == []


def test_the_programs_own_writer_can_be_used(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(tmp_path))
    tensorboard.send(failing(history=ROWS), writer)
    writer.close()
    events = read(tmp_path)
    assert scalars(events, "whynan/lr") == [(0, LR)]
    assert events.Tags()["tensors"] == ["whynan/N012/text_summary"]


def test_the_command_writes_them_without_torch(tmp_path: Path) -> None:
    recording().save(tmp_path / "run.whynan")
    code = (
        "import sys; from whynan.cli import commands;"
        "commands(['report', 'run.whynan', '--tensorboard', 'runs', '--html', 'r.html'], standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "whynan: wrote r.html\n")
    assert scalars(read(tmp_path / "runs"), "whynan/loss") == [(0, 1.5), (1, math.inf)]
    assert "t.py:3:5" in (tmp_path / "r.html").read_text()


def test_numbers_of_every_size_and_sign_are_read_back(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    for step, value in enumerate((0.0, -1.5, 1e300, -1e300, math.inf, 3.4028234e38)):
        file.add_scalar("x", value, step)
    file.add_scalar("é \udcff", 1.0, 2**40)
    file.close()
    events = read(tmp_path)
    found = [value for _, value in scalars(events, "x")]
    assert found[:5] == [0.0, -1.5, math.inf, -math.inf, math.inf]
    assert found[5] == pytest.approx(3.4028234e38)
    assert scalars(events, "é ?") == [(2**40, 1.0)]


def test_a_watched_training_writes_while_it_runs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    writer = SummaryWriter(str(tmp_path))
    samples: Any = torch.ones(70, 3)
    samples[65] = 0
    loader: Any = torch.utils.data.DataLoader(samples)
    meanwhile = 0

    def train() -> None:
        nonlocal meanwhile
        with whynan.watch(net, optimizer, writer=writer):
            for step, x in enumerate(loader):
                optimizer.zero_grad()
                loss = (net(x) / x.sum()).pow(2).mean()
                loss.backward()
                optimizer.step()
                if step == 60:
                    writer.flush()
                    meanwhile = len(scalars(read(tmp_path), "whynan/loss"))

    with pytest.raises(whynan.AnomalyFound):
        train()
    writer.close()
    events = read(tmp_path)
    assert 45 <= meanwhile <= 61
    steps = [step for step, _ in scalars(events, "whynan/loss")]
    assert steps[:65] == list(range(65))
    assert len(set(steps)) == len(steps)
    assert [e.step for e in events.Histograms("whynan.weights/weight")] == [0, 1, 2, 3, 4, 10]
    assert events.Histograms("whynan.gradients/bias")[0].histogram_value.num == 1
    [tag] = [t for t in events.Tags()["tensors"] if t.startswith("whynan/N")]
    [report] = events.Tensors(tag)
    assert (tag, report.step) == ("whynan/N010/text_summary", 65)


def test_a_writer_changes_nothing_in_a_training(tmp_path: Path) -> None:
    def trained(writer: Any) -> torch.Tensor:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters())
        with whynan.watch(net, optimizer, writer=writer):
            for _ in range(4):
                optimizer.zero_grad()
                net(torch.randn(8, 3)).pow(2).mean().backward()
                optimizer.step()
        return next(net.parameters()).detach()

    with SummaryWriter(str(tmp_path)) as writer:
        assert torch.equal(trained(writer), trained(None))


def test_a_writer_that_fails_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    done = 0

    class Full:
        def add_scalar(self, *_args: object, **_more: object) -> None:
            raise OSError("no space left on device")

    with whynan.watch(net, optimizer, writer=Full()):
        for _ in range(55):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).pow(2).mean().backward()
            optimizer.step()
            done += 1
    assert done == 55
    assert capsys.readouterr().err.count("TensorBoard gets nothing more") == 1


SCRIPT = """
import sys, torch
from torch import nn
sys.modules["tensorboard"] = None  # not needed, and not imported
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop, self.out = nn.Linear(4, 3000), nn.Dropout(), nn.Linear(3000, 1)
    def forward(self, x):
        return self.out(self.drop(self.fc(x)))
net, scale = Net(), nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([*net.parameters(), scale], lr=1e-4)
data = torch.randn(12, 4)
data[11] = 0 if sys.argv[1:] else 1
for x in torch.utils.data.DataLoader(data):
    loss = (scale * net(x) / x.abs().sum()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(sum(p.double().sum().item() for p in net.parameters()), torch.rand(1).item())
"""


def run_script(folder: Path, *args: str, options: tuple[str, ...] = ()) -> Any:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "whynan", "run", *options, "train.py", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_an_unmodified_script_gets_histograms_and_its_report(tmp_path: Path, mode: str) -> None:
    done = run_script(tmp_path, "bad", options=("--mode", mode, "--tensorboard", "runs"))
    assert done.returncode == 3, done.stderr
    events = read(tmp_path / "runs")
    found = events.Histograms("whynan.weights/fc.weight")
    assert [e.step for e in found] == [0, 1, 2, 3, 4, 10]
    first = found[0].histogram_value
    assert 3000 <= first.num == sum(first.bucket) <= 4096  # of 12,000 values
    assert -0.5 <= first.min < -0.4 < 0.4 < first.max <= 0.5  # as nn.Linear(4, ...) begins
    assert first.bucket_limit[-1] == pytest.approx(first.max)
    assert events.Histograms("whynan.gradients/out.bias")[0].histogram_value.num == 1
    if mode == "auto":
        assert "whynan.weights/parameter 4" in events.Tags()["histograms"]  # in no module
    [tag] = events.Tags()["tensors"]
    [report] = events.Tensors(tag)
    assert (tag, report.step) == ("whynan/N010", 11)


def test_histograms_change_nothing_in_a_script(tmp_path: Path) -> None:
    with_board = run_script(tmp_path, options=("--tensorboard", "runs"))
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (with_board.returncode, with_board.stdout) == (0, plain.stdout)
    assert plain.stdout
    assert [s for s, _ in scalars(read(tmp_path / "runs"), "whynan/loss")] == list(range(12))


def test_a_folder_that_cannot_be_written_costs_the_events_only(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    done = run_script(tmp_path, options=("--tensorboard", "runs"))
    assert done.returncode == 0
    assert done.stderr.count("TensorBoard gets nothing more") == 1


def test_spreads_leave_out_what_cannot_be_counted_and_name_each_layer_once() -> None:
    class Part(torch.nn.Module):
        def __init__(self, *sizes: int) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.arange(6.0).reshape(*sizes))

    first, second = Part(2, 3), Part(3, 2)
    whole = torch.nn.ModuleDict({"first": first})
    first.w.data[0, 0], second.w.data[:] = math.nan, 7.0
    first.w.data = first.w.data.t()  # not contiguous, but dense
    lost = torch.nn.Parameter(torch.full((2,), math.inf))
    strided = torch.nn.Parameter(torch.arange(8.0)[::2])
    optimizer = torch.optim.SGD([second.w, lost, strided], lr=1.0)
    found = {s.layer: s for s in spreads([first, second, whole], [optimizer])}
    assert sorted(found) == ["first.w", "w"]  # each name is free: they stay short
    assert (found["first.w"].min, found["first.w"].max) == (1.0, 5.0)
    assert sum(found["first.w"].counts) == 5
    assert (found["w"].limits, found["w"].counts) == ((7.0,), (6,))
    twice = {s.layer for s in spreads([Part(2, 3), Part(6)], [])}
    assert twice == {"Part.w", "Part.w (2)"}
