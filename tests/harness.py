"""Runs `whynan run` in forked children of one process, so that torch is imported only once."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # imported before the fork; no operation may run in this process

from whynan.launch import Program
from whynan.pipeline import Run, RunOptions


@dataclass(frozen=True)
class Result:
    """What a child left behind."""

    code: int
    stdout: str
    stderr: str
    report: dict[str, Any] | None


def run_forked(
    script: Path, *args: str, cwd: Path | None = None, traced: bool = True, **options: Any
) -> Result:
    """Run a script as `whynan run` (or, untraced, as plain Python) in a forked child."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, report = (Path(folder) / name for name in ("out", "err", "report.json"))
        pid = os.fork()
        if pid == 0:
            _child(script, args, cwd or script.parent, traced, out, err, report, options)
        status = _wait(pid)
        text = report.read_text() if report.exists() else None
        return Result(
            code=status,
            stdout=out.read_text(),
            stderr=err.read_text(),
            report=json.loads(text) if text else None,
        )


def _wait(pid: int, limit_s: float = 240.0) -> int:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the program did not end within {limit_s:g} s")


def _child(
    script: Path, args: tuple[str, ...], cwd: Path, traced: bool,
    out: Path, err: Path, report: Path, options: dict[str, Any],
) -> None:  # fmt: skip
    code = 70
    try:
        os.chdir(cwd)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False, buffering=1)
        name = os.path.relpath(script, cwd)
        import warnings

        warnings.resetwarnings()
        warnings.simplefilter("default")
        torch.set_num_threads(1)
        if traced:
            run = Run(Program(target=name, args=args), RunOptions(json=report, **options))
            code = run.go()
        else:
            import runpy

            sys.argv = [name, *args]
            sys.path[0] = str(script.parent)
            runpy.run_path(name, run_name="__main__")
            code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
