"""Jobs of several real processes, forked from one that has torch loaded and never computes.

A job of four ranks would otherwise import torch four times, which takes longer than the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"
COUNTING = PROGRAMS / "counting_collectives.py"
MARK = "WHYNAN_TEST_JOB"  # in the environment of every process of a job


@dataclass(frozen=True)
class Job:
    """What to start: as plain Python would, under whynan, or under whynan with its collectives told."""

    program: str
    args: list[str]
    world: int
    options: list[str] = field(default_factory=list)
    how: str = "counting"  # or "whynan", "plain"
    limit_s: float = 120.0


@dataclass(frozen=True)
class Ended:
    """What came of it."""

    codes: list[int | None]  # None: it had to be ended
    out: list[str]
    err: list[str]
    report: dict[str, Any] | None
    left: list[str]  # processes, files, ports
    seconds: float

    @property
    def digests(self) -> list[str]:
        """What the ranks say at their ends, in their order."""
        return [line for text in self.out for line in text.splitlines() if " ends " in line]


class RankServer:
    """Answers jobs one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.forked"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        )

    def run(self, program: Path, *args: str, world: int = 2, **how: Any) -> Ended:
        job = Job(str(program), list(args), world, **how)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the server of ranks died")
        return Ended(**json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def left_over(mark: str, folder: Path, port: int, known: set[str]) -> list[str]:
    """What a job should have taken with it."""
    found = [f"process {pid}" for pid in _marked(mark)]
    found += [f"file {p.name}" for p in folder.iterdir() if p.name not in known]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            found.append(f"port {port}")
    return found


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def run_forked(job: Job) -> Ended:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    temporary, port = folder / "tmp", free_port()
    temporary.mkdir()
    pids = []
    for rank in range(job.world):
        pid = os.fork()
        if pid == 0:
            _be_rank(job, rank, port, folder)
        pids.append(pid)
    codes = _wait(pids, began + job.limit_s)
    texts = [[(folder / f"{n}{r}").read_text() for r in range(job.world)] for n in ("out", "err")]
    report = folder / "report.json"
    ended = Ended(
        codes=codes,
        out=texts[0],
        err=texts[1],
        report=json.loads(report.read_text()) if report.exists() else None,
        left=left_over("", temporary, port, {"torchinductor_root"}),
        seconds=time.monotonic() - began,
    )
    shutil.rmtree(folder)
    return ended


def _wait(pids: list[int], end: float) -> list[int | None]:
    codes: dict[int, int | None] = {}
    while len(codes) < len(pids) and time.monotonic() < end:
        for pid in [p for p in pids if p not in codes]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    for pid in [p for p in pids if p not in codes]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        codes[pid] = None
    return [codes[pid] for pid in pids]


def _be_rank(job: Job, rank: int, port: int, folder: Path) -> NoReturn:
    code = 70
    try:
        for number, name in ((1, f"out{rank}"), (2, f"err{rank}")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (
            open(1, "w", closefd=False),
            open(2, "w", closefd=False, buffering=1),
        )
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(job.world),
            "LOCAL_WORLD_SIZE": str(job.world), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TMPDIR": str(folder / "tmp"),
        }  # fmt: skip
        tempfile.tempdir = None
        os.chdir(folder)
        own = ["run", "--json", str(folder / "report.json"), *job.options]
        if job.how == "plain":
            sys.argv, sys.path[0] = [job.program, *job.args], str(Path(job.program).parent)
            runpy.run_path(job.program, run_name="__main__")
        else:
            sys.argv = ["whynan", *own, job.program, *job.args]
            if job.how == "counting":
                runpy.run_path(str(COUNTING), run_name="__main__")
            else:
                from whynan.cli import main

                main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _serve() -> None:
    import torch
    import torch._dynamo  # each rank would import it again for its first optimizer
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(asdict(run_forked(Job(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    _serve()
