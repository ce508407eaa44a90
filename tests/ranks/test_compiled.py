"""What only a compiled function of one rank does wrong is found there, by that rank alone."""

from __future__ import annotations

from pathlib import Path

from tests.ranks.test_jobs import launch, line_of

PROGRAM = Path(__file__).parent.parent / "programs" / "compiled_ranks.py"


def test_the_ranks_say_what_would_find_it_and_it_does(tmp_path: Path) -> None:
    done = launch(tmp_path, program=PROGRAM)
    assert (done.codes, done.reports) == ([3, 3], 1), done.err
    (found,) = done.report["anomalies"]
    assert (found["step"], found["rank"]) == (4, 1)
    assert any("`whynan run --climb 4`" in text for text in found["unknown"])

    done = launch(tmp_path, program=PROGRAM, options=("--climb", "4"))
    assert (done.codes, done.reports) == ([3, 3], 1), done.err
    (found,) = done.report["anomalies"]
    assert (found["step"], found["rank"], found["mechanism"]) == (4, 1, "compiled_only")
    assert found["location"]["line"] == line_of("wrong", PROGRAM)
