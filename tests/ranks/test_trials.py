"""A change is tried as the job was started, and every rank has to stay healthy with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ranks.forked import _marked, free_port
from tests.ranks.test_launchers import PYTHON, TORCHRUN, assert_nothing_is_left, start
from whynan.cli.program import program_of
from whynan.run.program import Program, own_part, program_root
from whynan.trying.trial import Trial, run

TRAINING = """
import os, sys, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

def train(rank=None):
    if rank is not None:
        os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    rows, weight = torch.randn(24, 4), torch.ones(24)
    weight[9] = 1 - dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, w in DataLoader(TensorDataset(rows, weight), batch_size=4):
        loss = ((net(x).squeeze(1) * w).square() / w).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        while "hang" in sys.argv:
            time.sleep(1)

if __name__ == "__main__":
    if "spawn" in sys.argv:
        torch.multiprocessing.spawn(train, nprocs=2)
    else:
        train()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    return path


def test_ranks_that_the_script_spawns_run_the_changed_source(script: Path) -> None:
    folder = script.parent
    done = start(folder, "-m", "whynan", "fix", "--json", "report.json", "train.py", "spawn")
    assert done.returncode == 0, done.stderr
    anomaly = json.loads((folder / "report.json").read_text())["anomalies"][0]
    assert anomaly["rank"] == 1
    assert anomaly["fixes"][0]["verdict"] == "verified"
    assert "the 2 losses before it unchanged" in anomaly["fixes"][0]["evidence"]
    assert script.read_text() == TRAINING
    assert_nothing_is_left(folder)


def test_an_experiment_is_done_on_the_ranks_of_a_launcher(script: Path) -> None:
    changed = TRAINING.replace("/ w)", "/ w.clamp(min=1))")
    program = Program(target=TORCHRUN[1], args=(*TORCHRUN[2:], str(script)), is_module=True)
    texts = {str(script): changed}
    ran = run(Trial(program=program, texts=texts, intervention="clip", rank=1), limit_s=100)
    assert ran.diagnosis is not None, ran.errors
    assert (ran.diagnosis.outcome, ran.diagnosis.steps) == ("clean", 6)
    assert ran.applied


def test_no_rank_outlives_a_trial_that_takes_too_long(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHYNAN_TEST_JOB", str(script.parent))
    program = Program(target=TORCHRUN[1], args=(*TORCHRUN[2:], str(script), "hang"), is_module=True)
    assert run(Trial(program=program), limit_s=12).timed_out
    left = _marked(str(script.parent))
    assert left == []


def test_the_users_files_are_those_that_a_launcher_is_given(script: Path) -> None:
    torchrun = program_of(None, "torchrun", ("--nproc-per-node", "2", "train.py", "--lr", "1"))
    assert torchrun.target == str(Path(PYTHON).parent / "torchrun")
    assert own_part(torchrun) == Program(target="train.py", args=("--lr", "1"))
    assert program_root(torchrun) == str(script.parent)
    plain = Program(target="train.py", args=("other.py",))
    assert own_part(plain) == plain
