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
from whynan.errors import WhynanError
from whynan.model import HistoryRow
from whynan.report import tensorboard

LR = 0.125  # exact in float32
ROWS = (
    HistoryRow(step=0, loss=2.5, lr=LR, layers={"fc.weight": (0.5, 3.0)}),
    HistoryRow(step=1, loss=math.nan, grad_max=math.inf),
)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
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
    assert (done.returncode, done.stderr) == (0, "")
    assert scalars(read(tmp_path / "runs"), "whynan/loss") == [(0, 1.5), (1, math.inf)]
    assert "t.py:3:5" in (tmp_path / "r.html").read_text()


def test_a_missing_tensorboard_is_said_kindly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(WhynanError, match="pip install tensorboard"):
        tensorboard.write(failing(), tmp_path)


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
    assert {e.step for e in events.Histograms("whynan.weights/weight")} == {0}
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
    with whynan.watch(net, optimizer, writer=object()):
        for _ in range(55):
            optimizer.zero_grad()
            net(torch.ones(2, 3)).pow(2).mean().backward()
            optimizer.step()
            done += 1
    assert done == 55
    assert capsys.readouterr().err.count("TensorBoard gets nothing more") == 1
