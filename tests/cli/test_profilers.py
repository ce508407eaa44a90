"""A profiler around the command swallows exit codes; that of harm comes through all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = """
import atexit, torch
atexit.register(print, "the program's own last word")
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
(weight + {}).log().sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(("offset", "code"), [(0, 3), (1, 0)])
def test_harm_ends_with_3_under_cprofile(tmp_path: Path, offset: int, code: int) -> None:
    (tmp_path / "train.py").write_text(TRAINING.format(offset))
    profile = [sys.executable, "-m", "cProfile", "-o", "profile.out"]
    done = subprocess.run(
        [*profile, "-m", "whynan", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert ("error[" in done.stderr) == (code == 3)
    assert done.stdout == "the program's own last word\n"
    assert (tmp_path / "profile.out").stat().st_size > 0


FORKED = """
import multiprocessing, torch, whynan

def train(_):
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    try:
        with whynan.watch():
            weight.log().sum().backward()
            optimizer.step()
    except whynan.AnomalyFound as found:
        return found.diagnosis.anomalies[0].evidence.origin.name

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(train, [0]))
"""


def test_a_worker_can_be_watched_as_the_remark_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORKED)
    done = subprocess.run(
        [sys.executable, "-m", "whynan", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['log']\n", done.stderr
