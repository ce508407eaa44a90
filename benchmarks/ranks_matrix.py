"""Every way to shard a model, with every fault, in both modes: how often is the answer right?

python benchmarks/ranks_matrix.py [--repeats 20] [--kinds "ddp;layers"] [--worlds 2,4]

Each job is real processes over gloo, which are forked from one that has torch loaded. Right means: the
guilty rank and its line, one report, exit code 3 on every rank, no collective of whynan's but its vote,
no process, file or port left over; and of a healthy job the same results to the last bit, and silence.
The repeats take the four faults and two modes in turn; a quarter as many jobs are healthy ones.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.ranks.forked import PROGRAMS, RankServer
from tests.ranks.matrix import FAULTS, KINDS, MODES, judge, judge_healthy, marked, worlds

BY_NUMBER = {"ddp, by number": "ddp", "by_hand, by number": "by_hand"}  # no loop repeats the step
TURNS = [(fault, mode) for fault in FAULTS for mode in MODES]


def failing(server: RankServer, kind: str, world: int, turn: int) -> str:
    fault, mode = TURNS[turn % len(TURNS)]
    options = ["--mode", mode]
    if kind in BY_NUMBER:
        return _by_number(server, BY_NUMBER[kind])
    done = server.run(KINDS[kind], kind, fault, world=world, options=options)
    return judge(done, kind, fault)


def _by_number(server: RankServer, kind: str) -> str:
    program = PROGRAMS / "index_ranks.py"
    done = server.run(program, kind, "bad")
    found = (done.report or {}).get("anomalies") or [{}]
    line = (found[0].get("location") or {}).get("line")
    right = done.codes == [3, 3] and found[0].get("rank") == 1 and not done.left
    return "right" if right and line == marked(program, "origin") else f"{done.codes}, line {line}"


def healthy(server: RankServer, kind: str, world: int) -> str:
    program, how = KINDS.get(kind, PROGRAMS / "index_ranks.py"), BY_NUMBER.get(kind, kind)
    plain = server.run(program, how, "none", world=world, how="plain")
    return judge_healthy(server.run(program, how, "none", world=world), plain)


def shown(seen: list[str]) -> str:
    return ", ".join(f"{n} {what}" for what, n in collections.Counter(seen).items())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kinds", default=";".join([*KINDS, *BY_NUMBER]))
    parser.add_argument("--worlds", default="2,4")
    given = parser.parse_args()
    allowed = [int(w) for w in given.worlds.split(",")]
    server = RankServer()
    for kind in given.kinds.split(";"):
        for world in (2,) if kind in BY_NUMBER else worlds(kind):
            if world not in allowed:
                continue
            bad = [failing(server, kind, world, turn) for turn in range(given.repeats)]
            good = [healthy(server, kind, world) for _ in range(max(1, given.repeats // 4))]
            print(f"| {kind} | {world} | {shown(bad)} | {shown(good)} |", flush=True)
    server.close()


if __name__ == "__main__":
    main()
