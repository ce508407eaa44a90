"""whynan inside whynan: the inner one finds and tells, the outer one hinders nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.starting import run, write

TRAINING = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train(bad):
    for i in range(8):
        loss = torch.log(net(torch.ones(4, 2)).square() * (i != bad)).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    print("trained")
"""
BLOCK = """
import whynan
try:
    with whynan.watch(net, optimizer):
        train(int(sys.argv[1]))
except whynan.AnomalyFound as found:
    print(found.diagnosis.anomalies[0].finding.mechanism)
"""
AFTERWARDS = """
import whynan
with whynan.trace():
    net(torch.ones(4, 2))
train(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("bad", "code"), [("6", 3), ("-1", 0)])
def test_the_command_runs_the_command(tmp_path: Path, bad: str, code: int) -> None:
    script = write(tmp_path, TRAINING + "train(int(sys.argv[1]))\n")
    done = run("-m", "whynan", "run", str(script), bad, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error[N012]") == done.stderr.count("error[") == (code == 3)
    assert done.stdout == ("trained\n" if code == 0 else "")
    assert code == 3 or done.stderr == ""


@pytest.mark.parametrize("bad", ["3", "6"])
def test_a_block_of_the_programs_own_finds_the_same_as_alone(tmp_path: Path, bad: str) -> None:
    script = write(tmp_path, TRAINING + BLOCK)
    done = run(str(script), bad, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "log_nonpositive\n", "")


def test_after_a_block_the_outer_one_looks_again(tmp_path: Path) -> None:
    script = write(tmp_path, TRAINING + AFTERWARDS)
    done = run(str(script), "6", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("error[N012]") == done.stderr.count("error[") == 1, done.stderr
