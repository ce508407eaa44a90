"""Whoever waits at a terminal sees that something is done; nobody else is bothered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import threading
from whynan.cli.patience import while_waiting
with while_waiting("reading run.whynan", after_s={after}):
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and {after} == 0:
            thread.join()
print("done")
"""


def on_a_terminal(program: str) -> tuple[str, str]:
    """What a program writes to standard output and to a terminal at standard error."""
    ours, theirs = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        seen += part
    os.close(ours)
    assert done.returncode == 0, seen
    return done.stdout, seen.decode()


@pytest.mark.parametrize(("after", "said"), [(0, True), (600, False)])
def test_only_what_takes_long_is_announced(after: int, said: bool) -> None:
    stdout, terminal = on_a_terminal(PROGRAM.format(after=after))
    assert stdout == "done\n"
    assert ("reading run.whynan" in terminal) is said


def test_a_pipe_gets_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(after=0)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
