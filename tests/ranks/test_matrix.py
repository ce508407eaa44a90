"""Every way to shard a model: the right rank and line, all ranks leave, no collective of whynan's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ranks.forked import PROGRAMS, RankServer
from tests.ranks.matrix import FAULTS, KINDS, MODES, judge, judge_healthy, marked, worlds

# Each way once healthy and once failing; faults and modes take turns. All of them, and ranks that have
# already joined, which take a minute: `benchmarks/ranks_matrix.py`.
QUICK = [kind for kind in KINDS if kind != "joined"]
TURNS = [(kind, FAULTS[i % 4], MODES[(i // 2) % 2]) for i, kind in enumerate(QUICK)]
# The value comes to the other rank by a collective that is an operation: nobody may do that again.
TURNS += [("tp", "data", "auto")]


@pytest.fixture(scope="module")
def server() -> Iterator[RankServer]:
    server = RankServer()
    yield server
    server.close()


@pytest.mark.parametrize(("kind", "fault", "mode"), TURNS)
def test_the_guilty_rank_and_its_line_are_named_and_all_ranks_leave(
    server: RankServer, kind: str, fault: str, mode: str
) -> None:
    options = ["--mode", mode]
    done = server.run(KINDS[kind], kind, fault, world=worlds(kind)[0], options=options)
    assert judge(done, kind, fault) == "right", done.err


@pytest.mark.parametrize(("kind", "how"), [("ddp", "body"), ("by_hand", "body"), ("gathers", "no")])
def test_where_the_job_cannot_repeat_the_step_the_guilty_rank_does_alone(
    server: RankServer, kind: str, how: str
) -> None:
    """Without a collective: where its part needs one, the report says that it was not seen."""
    program = PROGRAMS / "index_ranks.py"
    done = server.run(program, kind, "bad")
    assert done.codes == [3, 3], done.err
    assert not any("a collective of whynan's own" in text for text in done.err), done.err
    assert done.report is not None
    assert done.report["reproduced"] == how
    found = done.report["anomalies"][0]
    assert (found["rank"], found["step"]) == (1, 7)
    if how == "body":
        assert found["location"]["line"] == marked(program, "origin")
    assert not done.left


@pytest.mark.parametrize("kind", QUICK)
def test_a_healthy_job_has_the_same_results_to_the_last_bit(server: RankServer, kind: str) -> None:
    world = worlds(kind)[0]
    plain = server.run(KINDS[kind], kind, "none", world=world, how="plain")
    done = server.run(KINDS[kind], kind, "none", world=world)
    assert judge_healthy(done, plain) == "right", done.err
