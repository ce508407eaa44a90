"""Whoever starts the ranks, each of them is watched: frameworks' launchers, and whynan around one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.forked import _marked
from tests.ranks.test_jobs import LIMIT_S, PROGRAM, SOURCE, line_of
from whynan.run.rank_programs import watched

LIGHTNING = PROGRAM.parent / "lightning_launcher.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SOURCE),
            "WHYNAN_TEST_JOB": str(folder),
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def the_report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def assert_nothing_is_left(folder: Path) -> None:
    end = time.monotonic() + 20  # the last rank leaves after the one that started it
    while _marked(str(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    assert _marked(str(folder)) == []
    assert not list(folder.glob("whynan-*"))


def test_lightnings_own_launcher(tmp_path: Path) -> None:
    done = start(tmp_path, "-m", "whynan", "run", "--json", "report.json", str(LIGHTNING), "57")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("error[") == 1
    assert "ends" not in done.stdout
    assert "Traceback" not in done.stderr
    found = the_report(tmp_path)["anomalies"][0]
    assert found["location"]["line"] == line_of("origin", LIGHTNING)
    assert "arrived by the all-reduce of DistributedDataParallel" in found["ranks"][0]
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(("bad", "code"), [("57", 3), ("-1", 0)])
def test_a_launcher_is_itself_started_under_whynan(tmp_path: Path, bad: str, code: int) -> None:
    whynan = ["-m", "whynan", "run", "--json", "report.json"]
    done = start(tmp_path, *whynan, *TORCHRUN, str(PROGRAM), "ddp", bad, "forward")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    report = the_report(tmp_path)
    if code == 0:
        assert report["outcome"] == "clean"
        assert done.stderr == ""
        assert done.stdout.count("ends, finite True") == 2  # lines may interleave
    else:
        assert done.stderr.count("error[") == 1
        found = report["anomalies"][0]
        assert (found["rank"], found["step"]) == (1, 7)
        assert found["location"]["line"] == line_of("forward")
    assert_nothing_is_left(tmp_path)


def test_accelerate_launch(tmp_path: Path) -> None:
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    launch += ["--main_process_port", "0"]  # any that is free
    whynan = ["-m", "whynan", "run", "--json", "report.json", str(PROGRAM), "ddp", "57", "backward"]
    done = start(tmp_path, *launch, *whynan)
    assert done.stderr.count("exitcode  : 3") == 2, done.stderr
    found = the_report(tmp_path)["anomalies"][0]
    assert (found["rank"], found["location"]["line"]) == (1, line_of("backward"))
    assert_nothing_is_left(tmp_path)


HOW = ["-m", "whynan", "run"]
PYTHON = sys.executable


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([PYTHON, "train.py", "-x"], [PYTHON, *HOW, "train.py", "-x"]),
        ([PYTHON, "-u", "-W", "error", "t.py"], [PYTHON, "-u", "-W", "error", *HOW, "t.py"]),
        ([PYTHON, "-m", "package.train"], [PYTHON, *HOW, "-m", "package.train"]),
        ([PYTHON, "-c", "print()"], None),
        ([PYTHON, "-m", "whynan", "run", "train.py"], None),
        ([PYTHON, "/usr/bin/whynan", "run", "train.py"], None),
        ([PYTHON], None),
        (["/bin/sh", "train.sh"], None),
    ],
)
def test_what_is_put_under_watch(command: list[str], expected: list[str] | None) -> None:
    assert watched(command, HOW) == expected
