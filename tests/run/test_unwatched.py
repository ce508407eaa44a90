"""A process that the program starts and that trains there is not watched: one line says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run.starting import run, write
from whynan.run.unwatched import REMARK

TRAINING = """
import os, sys, torch
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor

def train(steps=2):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
    print("trained", steps, flush=True)

def look():
    print(torch.zeros(1).log().item(), flush=True)
    torch.optim.SGD([torch.ones(1)], lr=0.1)

class Own(mp.Process):
    def run(self):
        train()
"""
FORKS = TRAINING + "if os.fork() == 0:\n    {}\nos.wait()\n"
PROCESS = """
if __name__ == "__main__":
    process = mp.get_context("{}").Process(target={})
    process.start()
    process.join()
"""
POOL = """
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp.get_context("fork")) as pool:
        pool.submit(train).result()
"""
TRAINS = {
    "fork": FORKS.format("train(); os._exit(0)"),
    "fork that falls through": FORKS.format("train(); sys.exit()"),
    "grandchild": FORKS.format("(os.fork() and os.wait()) or train(); os._exit(0)"),
    "process, forked": TRAINING + PROCESS.format("fork", "train"),
    "process, spawned": TRAINING + PROCESS.format("spawn", "train"),
    "class of its own": TRAINING + "mp.set_start_method('fork')\np = Own(); p.start(); p.join()\n",
    "pool": TRAINING + POOL,
    "left at once": FORKS.format("train(); os._exit(0)") + "os._exit(0)\n",
}
TRAINS_NOT = {
    "fork": FORKS.format("look(); os._exit(0)"),
    "process, forked": TRAINING + PROCESS.format("fork", "look"),
    "process, spawned": TRAINING + PROCESS.format("spawn", "look"),
    "workers": TRAINING
    + "list(torch.utils.data.DataLoader(torch.ones(4), num_workers=1))\ntrain()\n",
}


@pytest.mark.parametrize("name", TRAINS)
def test_training_elsewhere_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    script = write(tmp_path, TRAINS[name])
    done = run("--json", "report.json", str(script), cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "trained 2"), done.stderr
    assert done.stderr == f"whynan: {REMARK}\n"
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["outcome"], report["notes"]) == ("clean", [REMARK])


@pytest.mark.parametrize("name", TRAINS_NOT)
def test_a_process_that_does_not_train_is_not_spoken_of(name: str, tmp_path: Path) -> None:
    script = write(tmp_path, TRAINS_NOT[name])
    done = run("--json", "report.json", str(script), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "report.json").read_text())["notes"] == []


def test_it_is_said_beside_a_report(tmp_path: Path) -> None:
    text = FORKS.format("train(); os._exit(0)") + "print(torch.zeros(1).log())\n"
    done = run(str(write(tmp_path, text)), cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.count("error[") == 1
    assert done.stderr.count(REMARK) == 1


def test_a_compiled_step_of_a_forked_process_runs(tmp_path: Path) -> None:
    compiled = "torch.compile(optimizer.step, backend='eager')()"
    text = TRAINS["fork"].replace("optimizer.step()", compiled)
    done = run("--mode", "guard", str(write(tmp_path, text)), cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "trained 2"), done.stderr


def test_hooks_of_the_programs_own_run_as_they_did(tmp_path: Path) -> None:
    hooks = "from torch.optim.optimizer import register_optimizer_step_post_hook as hook\n"
    hooks += "for name in 'ab':\n    hook(lambda *_, name=name: print(name, flush=True))\n"
    done = run(
        str(write(tmp_path, TRAINS["fork"].replace("if os.fork", f"{hooks}if os.fork"))),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout.split()) == (0, [*"abab", "trained", "2"]), done.stderr
