"""Runs the program again in a fresh process, recorded from shortly before the failing step."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from whynan.errors import WhynanError
from whynan.files import SAVE_BATCH_TO
from whynan.recording import Recording, load

STEPS_BEFORE = 2
STEPS_AFTER = 2
PROGRESS = "WHYNAN_PROGRESS_FD"
QUIET_S = 2.0  # a second run this short needs no progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How the program was started."""

    target: str
    args: tuple[str, ...]
    is_module: bool
    cwd: str

    def line(self, *options: str) -> list[str]:
        what = ["-m", self.target] if self.is_module else [self.target]
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -O, -W, -X
        return [sys.executable, *flags, "-m", "whynan", "run", *options, *what, *self.args]


def run_again(
    command: Command, step: int | None, say: Callable[[str], None], announce: str = ""
) -> tuple[Recording | None, str]:
    """What a recorded second run shows, and why when it shows nothing.

    `step` is the one to be reached; None records everything from the start. `announce` is said
    when it takes long.
    """
    with tempfile.TemporaryDirectory(prefix="whynan-") as folder:
        path = Path(folder) / "recording.json"
        options = ["--mode", "trace", "--recording", str(path)]
        if step is not None:
            options += ["--trace-from", str(max(0, step - STEPS_BEFORE))]
            options += ["--max-steps", str(step + 1 + STEPS_AFTER)]
        errors = Path(folder) / "stderr"
        with errors.open("wb") as stream:
            code = _run(command, options, stream, _shown(step, say, announce))
        if not path.exists():
            return None, f"the second run ended with code {code} and left no recording"
        try:
            recording = load(path)
        except WhynanError as error:
            return None, str(error)
        if step is not None and recording.steps < step and not recording.evidence:
            why = f"the second run ended at step {recording.steps} with code {code}"
            return recording, why + _last_words(errors)
        return recording, "the second run stayed finite"


def _last_words(errors: Path) -> str:
    """What a run that failed said at its end."""
    lines = errors.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""


def _run(
    command: Command,
    options: list[str],
    errors: BinaryIO,
    show: Callable[[int, float, bool], None],
) -> int:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    # Options of this run given by environment variables are not the second run's.
    environment = {
        k: v for k, v in os.environ.items() if k == SAVE_BATCH_TO or not k.startswith("WHYNAN_")
    }
    environment[PROGRESS] = str(writing)
    process = subprocess.Popen(
        command.line(*options),
        cwd=command.cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=(writing,),
    )
    os.close(writing)
    try:
        _follow(process, reading, show)
        return process.wait()
    finally:
        os.close(reading)
        if process.poll() is None:
            process.kill()
            process.wait()


def _follow(
    process: subprocess.Popen[bytes], reading: int, show: Callable[[int, float, bool], None]
) -> None:
    """Show how far the second run is, now and then: steps, seconds, whether for the first time."""
    begin = time.monotonic()
    next_s, first, done = QUIET_S, True, 0
    while process.poll() is None:
        time.sleep(0.05)
        try:
            done += len(os.read(reading, 65536))
        except BlockingIOError:
            pass
        passed_s = time.monotonic() - begin
        if passed_s > next_s:
            show(done, passed_s, first)
            next_s, first = passed_s + (QUIET_S if sys.stderr.isatty() else 60.0), False


def _shown(
    step: int | None, say: Callable[[str], None], announce: str
) -> Callable[[int, float, bool], None]:
    of = f" of {step}" if step else ""

    def show(done: int, passed_s: float, first: bool) -> None:
        if first and announce:
            say(announce)
        elif not first or sys.stderr.isatty():
            say(f"second run: step {done}{of}, {passed_s:.0f} s")

    return show


def report_progress() -> Callable[[int], None]:
    """For the second run itself: one byte to its parent for every step."""
    number = os.environ.pop(PROGRESS, None)
    if number is None:
        return lambda step: None
    stream = int(number)
    os.set_inheritable(stream, False)

    def tell(_step: int) -> None:
        try:
            os.write(stream, b".")
        except OSError:  # nobody listens any more
            pass

    return tell
