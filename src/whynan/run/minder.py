"""Should whynan be ended, in whatever way, a small process ends what it had started and clears away.

No handler of signals could do that after SIGKILL: the minder waits for the end of a pipe instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def minded(folder: str) -> Iterator[Callable[[int, bool], None]]:
    """Until the block is left; the result is told what was started, and whether it leads a group."""
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), folder]
    minder = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert minder.stdin is not None
    pipe = minder.stdin

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):  # somebody has ended the minder
            pipe.write(text.encode())
            pipe.flush()

    try:
        yield lambda pid, leads: tell(f"{-pid if leads else pid}\n")
    finally:
        tell("done\n")
        with contextlib.suppress(OSError):
            pipe.close()
        minder.wait()


PID = "pid-"


def note_pid(folder: str) -> None:
    """In a process that no group of the command's has: it is to be ended as well."""
    with contextlib.suppress(OSError):
        open(os.path.join(folder, f"{PID}{os.getpid()}"), "x").close()


def end_noted(folder: str) -> None:
    """Those that are still there."""
    for name in os.listdir(folder):
        if name.startswith(PID):
            with contextlib.suppress(OSError):
                os.kill(int(name.removeprefix(PID)), signal.SIGKILL)


def _mind(folder: str) -> None:
    lines = sys.stdin.read().split()
    if lines[-1:] == ["done"]:
        return
    for line in lines:
        with contextlib.suppress(OSError):
            number = int(line)
            end = os.kill if number > 0 else os.killpg
            end(abs(number), signal.SIGKILL)
    with contextlib.suppress(OSError):
        end_noted(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _mind(sys.argv[1])
