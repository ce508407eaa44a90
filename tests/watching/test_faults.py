"""Whatever breaks, the user's training is not what dies, and what was seen is not lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import whynan
from tests.harness import ForkServer
from tests.watching.test_policies import TRAIN, written

# Fails at step 6 in a way that cannot be repeated in place: rows are taken by hand, a file is written.
BY_HAND = """
import os, sys, torch
second = "--recording" in open("/proc/self/cmdline").read()
torch.manual_seed(0)
x = torch.rand(40, 4); x[26] = 0
w = torch.ones(4, requires_grad=True)
opt = torch.optim.SGD([w], lr=1e-3)
for i in range(0, 40, 4):
    rows = x[i:i + 4]
    with open("progress", "w") as progress: progress.write(str(i))
    loss = ((rows * w).sum(1) / rows.norm(dim=1)).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    print(i, flush=True)
    SECOND
"""


def run(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whynan", "run", *options, script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell starts what it runs in the background deaf to Ctrl-C, and so are its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def train(steps: int = 6) -> list[float]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = model(torch.ones(4, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_an_error_in_the_guard_ends_the_guard_not_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from whynan.watching import guard, plan

    expected = train()

    def broken(tensors: list[torch.Tensor]) -> list[float]:
        raise RuntimeError("a bug in whynan")

    monkeypatch.setattr(guard, "norms", broken)
    monkeypatch.setattr(plan, "LIVE_STEPS", 0)
    with whynan.watch():
        assert train() == expected
    assert "a bug in whynan" in capsys.readouterr().err


def test_the_second_run_may_be_killed(tmp_path: Path) -> None:
    kill = "if second and i == 16: os.kill(os.getpid(), 9)"
    result = run(written(tmp_path, BY_HAND.replace("SECOND", kill)), "--json", "report.json")
    assert result.returncode == 3
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["reproduced"] == "no"
    assert report["anomalies"][0]["step"] == 6
    assert report["anomalies"][0]["location"] is None
    assert "code -9" in result.stderr
    assert result.stdout.split()[:6] == ["0", "4", "8", "12", "16", "20"]


def test_a_second_run_that_behaves_differently_is_said_to(tmp_path: Path) -> None:
    differ = "x[26] = 1.0 if second else 0.0"
    script = written(tmp_path, BY_HAND.replace("SECOND", differ))
    result = run(script, "--json", "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert (result.returncode, report["reproduced"]) == (3, "no")
    assert "stayed finite" in result.stderr
    assert "--mode trace" in result.stderr


def test_a_second_run_that_fails_before_the_step_is_said_to(tmp_path: Path) -> None:
    fail = "if second and i == 4: raise FileExistsError('runs/1')"
    result = run(written(tmp_path, BY_HAND.replace("SECOND", fail)), "--json", "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert (result.returncode, report["reproduced"]) == (3, "no")
    said = " ".join(result.stderr.split())
    assert "the second run ended at step 2 with code 1: FileExistsError: runs/1" in said
    assert "stayed finite" not in said


def test_an_unwritable_capsule_loses_nothing_else(programs: ForkServer, tmp_path: Path) -> None:
    script = written(tmp_path, TRAIN.replace("DROP", "False").replace("WORKERS", "0"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = run(script, "--capsule", str(blocked / "capsule"), "--json", "report.json")
    assert result.returncode == 3
    assert "could not write the capsule" in result.stderr
    assert "error[N010]" in result.stderr
    assert json.loads((tmp_path / "report.json").read_text())["anomalies"]


def test_a_capsule_holds_the_step_and_shows_its_report(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    script = written(tmp_path, TRAIN.replace("DROP", "False").replace("WORKERS", "0"))
    result = run(script, "--capsule", "capsule")
    assert result.returncode == 3
    folder = tmp_path / "capsule"
    manifest = json.loads((folder / "capsule.json").read_text())
    tensors = load_file(folder / "tensors.safetensors")
    assert manifest["schema"] == "whynan.capsule/1"
    x = tensors["batch.0.0"]
    assert x.shape == (8, 6)
    assert (x == 0).all(dim=1).any()  # the guilty batch
    weights = [t for name, t in tensors.items() if name.startswith("model.0.")]
    assert len(weights) == 6
    assert all(torch.isfinite(t).all() for t in weights)
    assert tensors["random.torch"].dtype is torch.uint8
    shown = subprocess.run(
        [sys.executable, "-m", "whynan", "report", "capsule"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    report = shown.stdout[: shown.stdout.index("history of steps")]
    assert report.partition("\nnote: ")[0].strip() in result.stderr
    assert "error[N010]" in shown.stdout


def test_interrupting_the_second_run_leaves_the_report_of_what_was_seen(tmp_path: Path) -> None:
    wait = "if second:\n        import signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    script = written(tmp_path, BY_HAND.replace("SECOND", wait))
    result = run(script, "--json", "report.json")
    assert result.returncode == 3
    assert "the second run was interrupted" in result.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["reproduced"], report["anomalies"][0]["step"]) == ("no", 6)
