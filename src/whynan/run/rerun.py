"""Runs the program again in a fresh process, recorded from shortly before the failing step."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from whynan import voice
from whynan.errors import WhynanError
from whynan.model import Evidence
from whynan.recording import EAGERLY, RIGHT, Recording, load
from whynan.run.minder import minded

if TYPE_CHECKING:
    from whynan.harm.ledger import Sign
    from whynan.run.outputs import RunOptions

STEPS_BEFORE = 2
STEPS_AFTER = 2
PROGRESS = "WHYNAN_PROGRESS_FD"
SHORT_S = 120.0  # a program that took longer is run once more only if that is asked for
LIMIT_S, LIMIT = 60.0, 4.0  # of a second run: seconds, and times what the first one took
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a second run showed, and why when it showed nothing."""

    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    why: str = ""
    is_right: bool = False  # what was shown is not finite, and the right answer


def look_elsewhere(
    sign: Sign, command: Command, options: RunOptions, *, is_second: bool = False, took_s: float = 0
) -> Again:
    """At harm that was seen in a program, in another run of it, where the options allow that."""
    if is_second:  # whoever started it decides whether there is to be another one
        return Again(why="it began before this run was recorded")
    if options.mode == "guard":
        why = "--mode guard only looks; run again without it to have the step recorded"
        return Again(why=why)
    if options.on_anomaly != "stop":
        return Again(
            why="the step could not be repeated in place; with --on-anomaly stop the script "
            "is run again to record it"
        )
    if options.rerun is False:
        return Again(why="--no-rerun: the program was not run once more to see it happen")
    if options.rerun is None and took_s > SHORT_S:
        why = f"the program ran for {took_s:.0f} s; --rerun runs it once more to see it happen"
        return Again(why=why)
    try:
        return _look_again(command, sign, options, took_s)
    except Exception as error:
        return Again(why=f"the script could not be run again: {error!r}")


def _look_again(command: Command, sign: Sign, asked: RunOptions, took_s: float) -> Again:
    from whynan.watching.signs import is_conclusive, place_of_sign

    what = "ended it" if sign.sink == "exception" else "went bad"
    where = f"{sign.subject} at step {sign.step}"
    voice.say(f"{where} {what}; running the script again to see it happen{_about(took_s)}")
    voice.say("what it writes goes aside, but for what other programs and compiled libraries write")
    limit_s = LIMIT_S + LIMIT * took_s
    since_s: float | None = time.time() - took_s
    again = Again()
    for step in (sign.step, None):
        try:
            options = _recorded(step, asked)
            if sign.is_kept:  # it was read right after the update of the step before, perhaps
                options += ["--finite-from", str(max(0, sign.step - 1))]
            recording, why = run_again(command, step, options, limit_s, since_s)
            if since_s is not None and _fell_short(recording, step):
                voice.say(f"{why}; once more with its files in place, which it writes again")
                since_s = None
                recording, why = run_again(command, step, options, limit_s, since_s)
        except TooLong:
            return replace(again, why=f"the second run was stopped after {limit_s:.0f} s")
        except KeyboardInterrupt:
            return replace(again, why="the second run was interrupted")
        again = replace(again, why=why)
        if recording is not None and seen(recording.evidence):
            notes = tuple(n for n in recording.notes if not n.startswith(RIGHT))
            again = replace(again, evidence=recording.evidence, notes=notes)
            if is_conclusive(recording.evidence[0]):
                break
        elif step is not None and recording is not None and not recording.evidence:
            # It did not come back: recording more of it would not help.
            if RIGHT + place_of_sign(sign) in recording.notes:
                return Again(is_right=True)
            if EAGERLY in recording.notes:
                return _climb(command, sign, limit_s, since_s, why)
            break
    return again


def _climb(command: Command, sign: Sign, limit_s: float, since_s: float | None, why: str) -> Again:
    """It ran in eager mode and stayed finite: compiled once more, what departs from that?"""
    try:
        options = compiled(sign.step, until=sign.step)
        recording, _ = run_again(command, sign.step, options, limit_s, since_s)
    except TooLong:
        recording = None
    found = recording.evidence if recording is not None else ()
    if not seen(found):
        return Again(why=f"{why}; it ran compiled functions in eager mode")
    return Again(evidence=found[:1])


def _fell_short(recording: Recording | None, step: int | None) -> bool:
    """Whether a run ended before it came to the step, as when it misses a file."""
    if recording is None:
        return True
    return step is not None and not recording.evidence and recording.steps < step


class TooLong(Exception):
    """A second run goes on and on."""


def _about(took_s: float) -> str:
    return f", about {took_s:.0f} s" if took_s >= 2 * QUIET_S else ""


def seen(evidence: tuple[Evidence, ...]) -> bool:
    """Whether a recording says more than that there was harm."""
    return bool(evidence) and evidence[0].origin_kind != "unseen"


def run_again(
    command: Command,
    step: int | None,
    options: list[str],
    limit_s: float,
    since_s: float | None,
) -> tuple[Recording | None, str]:
    """What a recorded second run shows, and why when it shows nothing.

    `step` is the one to be reached; None: there is none. It finds the files as they were at `since_s`,
    and writes aside; without, it writes again what it writes.
    """
    with tempfile.TemporaryDirectory(prefix="whynan-") as folder:
        path = Path(folder) / "recording.json"
        aside = Path(folder) / "aside"
        aside.mkdir()
        options = ["--recording", str(path), *options]
        if since_s is not None:
            options += ["--aside", str(aside), repr(since_s)]
        errors = Path(folder) / "stderr"
        with errors.open("wb") as stream, minded(folder) as mind:
            code = _run(command, options, stream, _shown(step, limit_s), mind)
        if not path.exists():
            return None, f"the second run ended with code {code} and left no recording"
        try:
            recording = load(path)
        except WhynanError as error:
            return None, str(error)
        if recording.evidence:
            return recording, "the second run did not show where it began"
        if step is not None and recording.steps < step:
            why = f"the second run ended at step {recording.steps} with code {code}"
            return recording, why + _last_words(errors)
        return recording, "the second run stayed finite"


def _recorded(step: int | None, asked: RunOptions) -> list[str]:
    """Every operation from shortly before the step; without one, from the start."""
    options = ["--mode", "trace"]
    if asked.save_batch is not None:
        options += ["--save-batch", str(asked.save_batch)]
    if asked.operands_are_kept:
        options += ["--keep-operands"]
    if step is not None:
        options += ["--trace-from", str(max(0, step - STEPS_BEFORE)), *_until(step)]
    return options


def compiled(step: int, *, until: int) -> list[str]:
    """Compiled functions run as they are, and those of the step are compared with eager mode."""
    return ["--climb", str(step), *_until(until)]


def _until(step: int) -> list[str]:
    return ["--max-steps", str(step + 1 + STEPS_AFTER)]


def _last_words(errors: Path) -> str:
    """What a run that failed said at its end."""
    lines = errors.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""


def _run(
    command: Command,
    options: list[str],
    errors: BinaryIO,
    show: Callable[[int, float, bool], None],
    mind: Callable[[int, bool], None],
) -> int:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    # Options of this run given by environment variables are not the second run's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WHYNAN_")}
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
    mind(process.pid, False)
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
            next_s, first = passed_s + (QUIET_S if voice.is_on_terminal() else 60.0), False


def _shown(step: int | None, limit_s: float) -> Callable[[int, float, bool], None]:
    of = f" of {step}" if step else ""

    def show(done: int, passed_s: float, first: bool) -> None:
        if passed_s > limit_s:
            raise TooLong
        if not first or voice.is_on_terminal():
            voice.say(f"second run: step {done}{of}, {passed_s:.0f} s")

    return show


def is_second_run() -> bool:
    """Whether this process was started to look at harm that another one saw."""
    return PROGRESS in os.environ


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
