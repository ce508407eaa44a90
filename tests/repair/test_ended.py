"""Whoever ends `whynan fix` or a second run, in whatever way, ends what it had started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# In a trial, and not before, it says who it is and waits, with a process of its own.
SCRIPT = """
import os, subprocess, sys, time, torch
if os.path.exists("ran"):
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    with open("pids", "w") as stream:
        stream.write(f"{os.getpid()} {worker.pid}")
    os.rename("pids", "ready")
    time.sleep(300)
open("ran", "w").close()
w = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
(w / torch.zeros(2)).sum().backward()
optimizer.step()
"""


def until(seen: Callable[[], bool]) -> bool:
    end = time.monotonic() + 90
    while not seen() and time.monotonic() < end:
        time.sleep(0.05)
    return seen()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def heeds_signals() -> None:
    """Whoever is started in the background, or by nohup, would ignore them, as it should."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_a_trial_and_its_folder_go_with_the_command(number: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "whynan", "fix", "script.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=heeds_signals,
    )
    try:
        assert until((tmp_path / "ready").exists)
        started = [int(pid) for pid in (tmp_path / "ready").read_text().split()]
        process.send_signal(getattr(signal, number))
        process.wait(60)
        assert until(lambda: not any(map(is_alive, started)))
        assert until(lambda: not [f for f in scratch.iterdir() if f.name.startswith("whynan-")])
    finally:
        process.kill()
        process.wait()
