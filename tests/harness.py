"""Runs programs as `whynan run` does, in forked children of one process that has torch loaded.

Importing torch takes seconds, a fork milliseconds. The forks come from a server process of its
own that never computes anything, so that no thread pool is copied half-way.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
PATHS = ("html", "tensorboard", "recording", "capsule", "save_batch")  # among the options


@dataclass(frozen=True)
class Job:
    """One program to run; `traced=False` runs it as plain Python would."""

    script: str
    args: list[str] = field(default_factory=list)
    cwd: str | None = None
    traced: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    device: str | None = None  # the program's default one; "toy" is the tests' own accelerator
    module: str | None = None  # run this one of the script's folder instead, as `python -m` does


@dataclass(frozen=True)
class Result:
    """What a program left behind."""

    code: int
    stdout: str
    stderr: str
    report: dict[str, Any] | None


def words_of_whynan(text: str) -> list[str]:
    """The lines that whynan itself has written; its name may stand in a path as well."""
    return [line for line in text.splitlines() if line.startswith(("whynan: ", "error["))]


class ForkServer:
    """Answers jobs one after the other; started at the first one."""

    def __init__(self, *preloaded: str) -> None:
        self._preloaded = preloaded  # modules that the programs would import again and again
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, script: Path, *args: str, cwd: Path | None = None, traced: bool = True,
        device: str | None = None, module: str | None = None, **options: Any
    ) -> Result:  # fmt: skip
        folder = str(cwd) if cwd else None
        job = Job(str(script), list(args), folder, traced, options, device, module)
        server = self._server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asdict(job)) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise RuntimeError("the fork server died")
        return Result(**json.loads(answer))

    def _server(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness", *self._preloaded],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
            )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()


def run_forked(
    script: Path, *args: str, cwd: Path | None = None, traced: bool = True,
    device: str | None = None, module: str | None = None, **options: Any
) -> Result:  # fmt: skip
    """Fork, run one program in the child, and collect what it left behind."""
    script = Path(script).resolve()
    with tempfile.TemporaryDirectory() as folder:
        out, err, report = (Path(folder) / name for name in ("out", "err", "report.json"))
        pid = os.fork()
        if pid == 0:
            if device is not None:
                _use(device)
            where = Path(cwd or script.parent)
            _child(script, args, where, traced, out, err, report, options, module)
        code = _wait(pid)
        text = report.read_text() if report.exists() else None
        result = Result(
            code=code,
            stdout=out.read_text(),
            stderr=err.read_text(),
            report=json.loads(text) if text else None,
        )
        return _without_remark(result) if traced else result


def _use(device: str) -> None:
    import torch

    if device == "toy":
        from tests.toy import toy

        toy.load()
        toy.share_generator()  # so that programs compute there what they compute on the CPU
    torch.set_default_device(device)


def besides(notes: Iterable[str]) -> list[str]:
    """What an older torch lacks is a line of every report there; tests ask what is said besides."""
    from whynan.seam.support import remark

    return [note for note in notes if note != remark()]


def _without_remark(result: Result) -> Result:
    from whynan.seam.support import remark

    report = result.report
    if report is not None:
        report = {**report, "notes": besides(report["notes"])}
    return replace(result, stderr=result.stderr.replace(f"whynan: {remark()}\n", ""), report=report)


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


def _redirect(out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False, buffering=1)


def _child(
    script: Path, args: tuple[str, ...], cwd: Path, traced: bool,
    out: Path, err: Path, report: Path, options: dict[str, Any], module: str | None,
) -> None:  # fmt: skip
    code = 70
    try:
        os.chdir(cwd)
        _redirect(out, err)
        name = module or os.path.relpath(script, cwd)
        if traced:
            _second_runs_are_forked()
            from whynan.run.outputs import RunOptions
            from whynan.run.program import Program
            from whynan.run.run import Run

            paths = {k: Path(v) for k, v in options.items() if k in PATHS}
            options = {"mode": "trace", **options, **paths}
            program = Program(target=name, args=args, is_module=module is not None)
            run = Run(program, RunOptions(json=report, **options))
            code = run.go().code
        else:
            import runpy

            sys.argv = [name, *args]
            sys.path[0] = str(script.parent)
            if module is not None:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(name, run_name="__main__")
            code = 0
    except SystemExit as error:
        code = _code_of(error)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have broken it
                stream.flush()
        os._exit(code)


def _code_of(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else 0 if error.code is None else 1


def _second_runs_are_forked() -> None:
    """A second run of a program is a process of its own; here it is forked from one that has torch
    loaded and has run nothing yet. (tests/watching/test_faults.py starts real ones.)"""
    from whynan.run import rerun

    requests, answers = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(requests[1])
        with os.fdopen(requests[0]) as lines:
            for line in lines:
                os.write(answers[1], b"%d\n" % _second_run(json.loads(line)))
        os._exit(0)
    os.close(requests[0])
    replies = os.fdopen(answers[0])

    def run(command: Any, options: list[str], errors: Any, show: Any, mind: Any) -> int:
        what = ["-m", command.target] if command.is_module else [command.target]
        job = {"cwd": command.cwd, "args": ["run", *options, *what, *command.args]}
        os.write(requests[1], json.dumps(job).encode() + b"\n")
        return int(replies.readline())

    rerun._run = run


def _second_run(job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            from whynan.cli import commands

            os.chdir(job["cwd"])
            _redirect(Path(os.devnull), Path(os.devnull))
            commands(job["args"], standalone_mode=False)
        except SystemExit as error:
            code = _code_of(error)
        finally:
            os._exit(code)
    return _wait(pid)


def _serve(requests: IO[str], answers: IO[str]) -> None:
    import libcst.metadata  # noqa: F401  # and this for its first report
    import torch
    import torch._dynamo  # each child would import it again for its first optimizer

    for name in sys.argv[1:]:
        importlib.import_module(name)
    torch.set_num_threads(1)
    for line in requests:
        job = Job(**json.loads(line))
        cwd = Path(job.cwd) if job.cwd else None
        result = run_forked(
            Path(job.script),
            *job.args,
            cwd=cwd,
            traced=job.traced,
            device=job.device,
            module=job.module,
            **job.options,
        )
        answers.write(json.dumps(asdict(result)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
