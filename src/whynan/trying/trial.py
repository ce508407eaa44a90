"""Run a program in a fresh process under the tracer, with changed sources or one intervention."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Literal

from whynan.model import Diagnosis
from whynan.run.minder import end_noted, minded
from whynan.run.program import Program
from whynan.run.reopen import reopen

LAST_WORDS = 2000  # characters of a failed program's own errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Samples to leave out of one batch: the batch's number in the run, its size, the rows."""

    fetch: int
    size: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to run."""

    program: Program
    texts: Mapping[str, str] = field(default_factory=dict)  # path -> changed source
    max_steps: int | None = None
    enough_steps: int | None = None  # will do once half of the time is over
    finite_from: int | None = None  # a step from which on a NaN loss is harm by itself
    intervention: str | None = None
    drop: Drop | None = None
    mode: Literal["trace", "auto", "guard"] = "trace"  # recorded, compiled functions run eagerly
    save_batch: str | None = None  # where to write the failing batch
    rank: int | None = None  # of a job: whose losses are told, if it ends healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What happened."""

    diagnosis: Diagnosis | None  # None: it ended before anything could be written
    code: int
    seconds: float
    cpu_s: float | None = None  # that it worked; None: not known
    timed_out: bool = False
    errors: str = ""
    applied: int | None = None  # how often an intervention had something to change

    @property
    def last_error(self) -> str:
        """The last line of the program's own standard error: what it died of."""
        lines = [line for line in self.errors.strip().splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self.code}"


def run(trial: Trial, *, limit_s: float | None = None, quiet: bool = True) -> Ran:
    """Run it to its end or for `limit_s` seconds; `quiet` swallows what the program prints."""
    started, worked = time.monotonic(), children_s()
    with tempfile.TemporaryDirectory(prefix="whynan-") as folder, minded(folder) as mind:
        result, applied = Path(folder) / "recording.json", Path(folder) / "applied"
        description = Path(folder) / "trial.json"
        description.write_text(
            json.dumps(_describe(trial, result, applied, limit_s)), encoding="utf-8"
        )
        with open(Path(folder) / "errors", "w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    *_interpreter_flags(),
                    "-m",
                    "whynan.trying.child",
                    str(description),
                ],
                stdin=subprocess.DEVNULL if quiet else None,
                stdout=subprocess.DEVNULL if quiet else None,
                stderr=errors if quiet else None,
                start_new_session=quiet,  # so that its workers can be ended with it
            )
            mind(process.pid, quiet)
            try:
                timed_out = _wait(process, limit_s, alone=quiet)
            finally:
                end_noted(folder)
            text = _tail(errors)
        diagnosis = reopen(result) if result.exists() else None
        times = json.loads(applied.read_text()) if applied.exists() else None
    return Ran(
        diagnosis=diagnosis,
        applied=times,
        code=process.returncode,
        seconds=time.monotonic() - started,
        cpu_s=None if worked is None else (children_s() or worked) - worked,
        timed_out=timed_out,
        errors=text,
    )


def children_s() -> float | None:
    """Processor time of all processes that were started and have ended; not told on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _describe(
    trial: Trial, result: Path, applied: Path, limit_s: float | None
) -> dict[str, object]:
    steps = trial.enough_steps
    return {
        "target": trial.program.target,
        "args": list(trial.program.args),
        "is_module": trial.program.is_module,
        "texts": dict(trial.texts),
        "max_steps": trial.max_steps,
        "finite_from": trial.finite_from,
        "enough": None if steps is None or limit_s is None else (steps, limit_s / 2),
        "intervention": trial.intervention,
        "drop": asdict(trial.drop) if trial.drop is not None else None,
        "save_batch": trial.save_batch,
        "rank": trial.rank,
        "mode": trial.mode,
        "result": str(result),
        "applied": str(applied),
    }


def _interpreter_flags() -> list[str]:
    """`-W`, `-O`, `-X` and the like, as this interpreter was given them."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # not in typeshed
    return flags


def _wait(process: subprocess.Popen[bytes], limit_s: float | None, *, alone: bool) -> bool:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _end(process, alone)
        return True
    except BaseException:  # Ctrl-C
        _end(process, alone)
        raise
    return False


def _end(process: subprocess.Popen[bytes], alone: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if alone:
            os.killpg(process.pid, signal.SIGKILL)  # the trial's own group
        else:
            process.kill()
    process.wait()


def _tail(errors: IO[str]) -> str:
    errors.seek(0)
    return errors.read()[-LAST_WORDS:]
