"""Searches for fixes in forked children of one process that has torch loaded, as in the harness.

The trials are the real ones (overlay, tracer, verdict); only the start of the process is cheaper.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0
WAITS = 4.0  # a busy machine


class RepairServer:
    """`fix` and `whatif` on one program; started at the first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def fix(self, script: Path, *args: str) -> dict[str, Any]:
        """causes and sample of the first anomaly, the fixes, and the changed files of the first."""
        return self._ask("fix", script, args)

    def whatif(self, script: Path, *args: str) -> dict[str, Any]:
        return self._ask("whatif", script, args)

    def guilty(self, script: Path) -> dict[str, Any]:
        """The sample that is found by leaving out parts of the batch."""
        return self._ask("guilty", script, ())

    def _ask(self, kind: str, script: Path, args: tuple[str, ...]) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.repair.forked"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, str(script), list(args)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the repair server died")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()


def run_forked(trial: Any, *, limit_s: float | None = None) -> Any:
    """As `trial.run`, by a fork."""
    from whynan.run.reopen import reopen
    from whynan.trying.trial import Ran, _describe

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result, errors = Path(folder) / "recording.json", Path(folder) / "errors"
        applied = Path(folder) / "applied"
        description = Path(folder) / "trial.json"
        description.write_text(json.dumps(_describe(trial, result, applied, limit_s)))
        pid = os.fork()
        if pid == 0:
            _child(description, errors)
        code, timed_out, worked = _wait(pid, min(limit_s or LIMIT_S, WAITS * LIMIT_S))
        return Ran(
            diagnosis=reopen(result) if result.exists() else None,
            applied=json.loads(applied.read_text()) if applied.exists() else None,
            code=code,
            seconds=time.monotonic() - started,
            cpu_s=worked,
            timed_out=timed_out,
            errors=errors.read_text()[-2000:],
        )


def _wait(pid: int, limit_s: float) -> tuple[int, bool, float]:
    """The exit code, whether time was up, and the processor time that it worked."""
    end, timed_out = time.monotonic() + limit_s, False
    while not (ended := os.wait4(pid, 0 if timed_out else os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(pid, 9)
            timed_out = True
        time.sleep(0.01)
    _, status, used = ended
    return os.waitstatus_to_exitcode(status), timed_out, used.ru_utime + used.ru_stime


def _child(description: Path, errors: Path) -> None:
    from whynan.trying import child

    code = 70
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False, buffering=1)
        code = child.main(str(description))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def _fix(script: Path, args: list[str]) -> dict[str, Any]:
    from whynan.run.program import Program
    from whynan.trying.search import Search, compiled_too
    from whynan.trying.trial import Trial

    program = Program(target=script.name, args=tuple(args))
    trial = Trial(program=program)
    before: Any = compiled_too(run_forked(trial), trial, run_forked).diagnosis
    if not before.anomalies:
        return {"anomaly": None, "fixes": [], "texts": {}}
    search = Search(program=program, before=before, run=run_forked, budget_s=LIMIT_S).go()
    first = before.anomalies[0]
    sample = first.evidence.around.sample
    return {
        "anomaly": first.finding.mechanism,
        "causes": {c.code: c.evidence for c in first.finding.causes},
        "sample": None if sample is None else [sample.index, sample.bad, sample.dataset_index],
        "fixes": [
            {
                "kind": f.kind,
                "title": f.title,
                "verdict": f.verdict,
                "evidence": f.evidence,
                "patch": f.patch,
            }
            for f in search.fixes()
        ],
        "texts": dict(search.found.candidate.texts) if search.found else {},
    }


def _guilty(script: Path, args: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    from whynan.run.program import Program
    from whynan.trying.guilty import Bisection
    from whynan.trying.trial import Trial

    program = Program(target=script.name, args=tuple(args))
    before = run_forked(Trial(program=program)).diagnosis
    bisection = Bisection(program=program, before=before, run=run_forked, budget_s=LIMIT_S)
    sample = bisection.find()
    return {"sample": sample and asdict(sample), "tries": bisection.tries}


def _whatif(script: Path, args: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    from whynan.run.program import Program
    from whynan.trying.whatif import WhatIf, reading, write_page

    program = Program(target=script.name, args=tuple(args))
    table = WhatIf(program=program, run=run_forked, budget_s=LIMIT_S).go()
    sentences = reading(table.rows, table.baseline)
    write_page(table, sentences, script.with_suffix(".html"))
    return {"rows": [asdict(row) for row in table.rows], "reading": sentences}


def _serve(requests: IO[str], answers: IO[str]) -> None:
    import torch
    import torch._dynamo  # each child would import it again for its first optimizer

    import whynan.watching.watch  # noqa: F401  # once, not in every child

    torch.set_num_threads(1)
    for line in requests:
        kind, script, args = json.loads(line)
        try:
            os.chdir(Path(script).parent)
            answer = {"fix": _fix, "whatif": _whatif, "guilty": _guilty}[kind](Path(script), args)
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
