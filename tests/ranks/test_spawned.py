"""Ranks that the program starts itself: watched like those of a launcher, one report for the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.test_jobs import LIMIT_S, SOURCE, free_port

PROGRAM = Path(__file__).parent.parent / "programs" / "spawn_ranks.py"
ORIGIN = next(
    i for i, text in enumerate(PROGRAM.read_text().splitlines(), 1) if text.endswith("origin")
)


def start(folder: Path, how: str, bad: int, *options: str, watched: bool = True) -> Any:
    whynan = ["-m", "whynan", "run", "--json", "report.json", *options] if watched else []
    return subprocess.run(
        [sys.executable, *whynan, str(PROGRAM), how, str(bad), str(free_port())],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_the_guilty_rank_is_named_once_and_the_program_ends_with_3(
    tmp_path: Path, how: str
) -> None:
    done = start(tmp_path, how, 57, "--fix")
    assert done.returncode == 3, done.stderr
    assert "--fix is for programs of one process" in done.stderr
    assert done.stderr.count("error[") == 1
    assert "Traceback" not in done.stderr
    result = report(tmp_path)
    [found] = result["anomalies"]
    assert (found["rank"], found["step"], found["location"]["line"]) == (1, 7, ORIGIN)
    assert "item 57 of the dataset" in done.stderr  # although a worker fetched it ahead
    assert "rank 0: finite until it arrived by the all-reduce" in found["ranks"][0]


def test_healthy_ranks_end_as_they_would_without_whynan(tmp_path: Path) -> None:
    done = start(tmp_path, "fork", -1, "--tensorboard", "runs")
    plain = start(tmp_path, "fork", -1, watched=False)
    assert (done.returncode, done.stderr) == (0, plain.stderr)
    assert sorted(done.stdout) == sorted(plain.stdout)  # lines of two ranks may interleave
    assert plain.stdout.count("ends with") == 2
    result = report(tmp_path)
    assert (result["outcome"], result["steps"]) == ("clean", 8)
    assert len(list((tmp_path / "runs").iterdir())) == 1  # of the first rank


def test_an_exception_of_a_rank_stays_the_programs_own(tmp_path: Path) -> None:
    done = start(tmp_path, "raise", -1)
    assert done.returncode == 1
    assert "ProcessRaisedException" in done.stderr
    assert "ValueError: no such row" in done.stderr
    assert "error[" not in done.stderr
    assert report(tmp_path)["outcome"] == "crashed"


def test_a_process_that_joins_no_job_is_left_alone(tmp_path: Path) -> None:
    done = start(tmp_path, "workers", -1)
    assert (done.returncode, done.stderr) == (0, "")
    # Lines of two processes may interleave: an unbuffered one writes the end of its line apart.
    assert [done.stdout.count(f"worker {number}: -inf") for number in (0, 1)] == [1, 1]
    assert report(tmp_path)["outcome"] == "clean"


LEAVES_TORCH_TO_THEM = """
import importlib.util, multiprocessing, os, sys

def work(rank, port):
    assert "torch" not in sys.modules and importlib.util.find_spec("torch") is not None
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", port
    import torch
    from torch.distributed import init_process_group
    init_process_group("gloo", rank=rank, world_size=2)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(3):
        loss = torch.log(net(torch.ones(4, 2)).square() * (rank == 0)).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    for rank in (0, 1):
        context.Process(target=work, args=(rank, sys.argv[1])).start()
"""


def test_ranks_are_watched_where_only_they_import_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LEAVES_TORCH_TO_THEM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "whynan",
            "run",
            "--json",
            "report.json",
            "train.py",
            str(free_port()),
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    found = report(tmp_path)["anomalies"][0]
    assert found["rank"] == 1
    assert found["location"]["source"].startswith("loss = torch.log(")
