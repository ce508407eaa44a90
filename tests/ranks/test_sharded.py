"""Sharded tensors: whynan looks at its own rank's part and never makes the ranks talk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.test_jobs import Ended, launch, line_of

PROGRAMS = Path(__file__).parent.parent / "programs"
EVERYWHERE = PROGRAMS / "sharded_ranks.py"
COUNTING = (str(PROGRAMS / "counting_collectives.py"),)
WAYS = ("by_hand", "outputs", "prints", "saves", "copies", "clips", "raises")


def assert_kept_to_itself(done: Ended) -> None:
    for text in done.err:
        assert "a collective of whynan's own" not in text, text
        assert "stepped aside" not in text, text


@pytest.mark.parametrize("fault", ["forward", "backward"])
@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_layers_sharded_one_by_one_and_then_the_root(tmp_path: Path, mode: str, fault: str) -> None:
    """As everybody uses it. The guilty rank alone describes its layers."""
    options = ["--mode", mode, "--tensorboard", str(tmp_path / "runs")]
    if mode == "auto":
        options += ["--capsule", str(tmp_path / "capsule")]
    done = launch(tmp_path, "layers", "57", fault, options=tuple(options), whynan=COUNTING)
    assert done.codes == [3, 3], done.err
    assert_kept_to_itself(done)
    assert done.reports == 1
    found = done.report["anomalies"][0]
    assert (found["rank"], found["step"], found["location"]["line"]) == (1, 7, line_of(fault))


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_no_look_at_a_sharded_tensor_makes_the_ranks_talk(tmp_path: Path, mode: str) -> None:
    options = ("--mode", mode, "--on-anomaly", "warn")
    done = launch(tmp_path, *WAYS, options=options, program=EVERYWHERE, whynan=COUNTING)
    assert done.codes == [3, 3], done.err
    assert_kept_to_itself(done)
    found = done.report["anomalies"]
    assert {a["rank"] for a in found} == {1}
    if mode == "trace":  # what was printed, saved or returned before training went on is no harm
        lines = {a["location"]["line"] for a in found}
        assert lines >= {line_of(way, EVERYWHERE) for way in ("copies", "clips")}
