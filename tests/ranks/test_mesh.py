"""A program may never call `init_process_group`: `init_device_mesh` does, by a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.test_jobs import launch, line_of

PROGRAMS = Path(__file__).parent.parent / "programs"
MESH = PROGRAMS / "mesh_ranks.py"
COUNTING = (str(PROGRAMS / "counting_collectives.py"),)


@pytest.mark.parametrize("kind", ["fsdp", "ddp", "tp"])
@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_a_job_that_a_mesh_begins_is_one(tmp_path: Path, mode: str, kind: str) -> None:
    done = launch(tmp_path, kind, "7", options=("--mode", mode), program=MESH)
    assert done.codes == [3, 3], done.err
    assert done.reports == 1, done.err
    assert done.out == ["", ""]  # both were stopped
    (found,) = done.report["anomalies"]
    assert (found["step"], found["location"]["line"]) == (7, line_of("log", MESH))
    assert kind == "tp" or found["rank"] == 1


@pytest.mark.parametrize("kind", ["fsdp", "ddp", "tp"])
def test_a_healthy_one_is_left_alone(tmp_path: Path, kind: str) -> None:
    done = launch(tmp_path, kind, "-1", program=MESH, whynan=COUNTING)
    assert done.codes == [0, 0], done.err
    assert [text.strip() for text in done.out] == [f"rank {r} ends, finite True" for r in (0, 1)]
    assert done.err == ["", ""]
    assert done.report["outcome"] == "clean"
