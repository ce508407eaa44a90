"""Real jobs of two gloo processes: the guilty rank is named, nobody hangs, one report is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent.parent / "programs" / "train_ranks.py"
SOURCE = Path(__file__).parents[2] / "src"
LIMIT_S = 120


def line_of(mark: str, program: Path = PROGRAM) -> int:
    lines = program.read_text().splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith(f"# LINE: {mark}"))


@dataclass(frozen=True)
class Ended:
    """One job: exit code and standard error of each rank, and the one report."""

    codes: list[int]
    out: list[str]
    err: list[str]
    report: dict[str, Any]

    @property
    def reports(self) -> int:
        return sum(text.count("error[") for text in self.err)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(
    folder: Path,
    *args: str,
    options: tuple[str, ...] = (),
    ends: tuple[int, ...] = (0, 1),
    program: Path = PROGRAM,
    whynan: tuple[str, ...] = ("-m", "whynan"),
) -> Ended:
    """Two ranks as a job script starts them; those not in `ends` are killed at the end."""
    report = folder / "report.json"
    shared = {
        **os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1", "WHYNAN_RANK_TIMEOUT": "3" if len(ends) < 2 else "60",
        "PYTHONPATH": str(SOURCE),
    }  # fmt: skip
    command = [sys.executable, *whynan, "run", "--json", str(report), *options]
    files = [[(folder / f"{name}{rank}").open("w+") for name in ("out", "err")] for rank in (0, 1)]
    ranks = [
        subprocess.Popen(
            [*command, str(program), *args],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=files[rank][0],
            stderr=files[rank][1],
        )
        for rank in (0, 1)
    ]
    try:
        codes = [ranks[rank].wait(LIMIT_S) for rank in ends]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        for streams in files:
            for stream in streams:
                stream.close()
    texts = [[(folder / f"{name}{rank}").read_text() for rank in (0, 1)] for name in ("out", "err")]
    return Ended(codes, texts[0], texts[1], json.loads(report.read_text()))


def test_a_bad_row_on_one_rank_is_found_there_by_repeating_the_step_on_all(tmp_path: Path) -> None:
    done = launch(tmp_path, "ddp", "57", "backward")
    assert done.codes == [3, 3], done.err
    assert done.reports == 1
    found = done.report["anomalies"][0]
    assert (found["rank"], found["step"], found["phase"]) == (1, 7, "backward")
    assert found["location"]["line"] == line_of("backward")
    assert found["mechanism"] == "gradient_singularity"
    assert done.report["reproduced"] == "rewind"
    assert "arrived by the all-reduce of DistributedDataParallel" in found["ranks"][0]


def test_sharded_gradients_are_looked_at_and_the_sender_is_guilty(tmp_path: Path) -> None:
    done = launch(tmp_path, "fsdp", "57", "backward")
    assert done.codes == [3, 3], done.err
    assert done.reports == 1
    found = done.report["anomalies"][0]
    assert (found["rank"], found["step"]) == (1, 7)
    assert found["location"]["line"] == line_of("backward")
    assert "rank 0: finite until it arrived by the reduce-scatter" in found["ranks"][0]


def test_all_ranks_leave_out_the_same_update(tmp_path: Path) -> None:
    done = launch(tmp_path, "fsdp", "9", "forward", options=("--on-anomaly", "skip"))
    assert done.codes == [3, 3], done.err
    assert [text.strip() for text in done.out] == [f"rank {r} ends, finite True" for r in (0, 1)]
    assert all("skipped 1 update(s), at step 1" in text for text in done.err)
    found = done.report["anomalies"][0]
    assert (found["rank"], found["location"]["line"]) == (1, line_of("forward"))


def test_a_rank_that_hangs_does_not_keep_the_report_back(tmp_path: Path) -> None:
    done = launch(tmp_path, "plain", "57", "hang", ends=(0,))
    assert done.codes == [3], done.err
    assert "no answer from all other ranks at step 7" in done.err[0]
    found = done.report["anomalies"][0]
    assert (found["step"], found["sink"]) == (7, "gradient")
    assert any("rank 1 said nothing in time" in text for text in found["ranks"])
    assert any("on which rank it began is not known" in text for text in found["ranks"])


def test_a_healthy_job_is_left_alone(tmp_path: Path) -> None:
    done = launch(tmp_path, "plain", "-1", "forward")
    assert done.codes == [0, 0], done.err
    assert [text.strip() for text in done.out] == [f"rank {r} ends, finite True" for r in (0, 1)]
    assert done.report["outcome"] == "clean"
    assert done.err == ["", ""]


def test_torchrun_starts_it(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "whynan", "run", "--json", str(report), str(PROGRAM), "ddp", "57", "forward",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False
    )
    assert ended.stderr.count("error[") == 1, ended.stderr
    assert ended.stderr.count("exitcode  : 3") == 2  # as the launcher saw both ranks leave
    found = json.loads(report.read_text())["anomalies"][0]
    assert (found["rank"], found["step"]) == (1, 7)
    assert found["location"]["line"] == line_of("forward")
