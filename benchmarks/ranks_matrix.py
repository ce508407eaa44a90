"""Every way to shard a model, with every fault, in both modes: how often is the answer right?

python benchmarks/ranks_matrix.py [--repeats 20] [--kinds ddp,layers] [--worlds 2,4]

Each job is real processes over gloo, which are forked from one that has torch loaded. Right means: the
guilty rank and its line, one report, exit code 3 on every rank, no collective of whynan's but its vote,
no process, file or port left over; and of a healthy job the same results to the last bit, and silence.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.ranks.forked import RankServer
from tests.ranks.matrix import FAULTS, KINDS, MODES, judge, judge_healthy, worlds


def outcome(server: RankServer, kind: str, fault: str, mode: str, world: int) -> str:
    program, options = KINDS[kind], ["--mode", mode]
    done = server.run(program, kind, fault, world=world, options=options)
    if fault != "none":
        return judge(done, kind, fault)
    return judge_healthy(done, server.run(program, kind, fault, world=world, how="plain"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--worlds", default="2,4")
    given = parser.parse_args()
    allowed = [int(w) for w in given.worlds.split(",")]
    server = RankServer()
    for kind in given.kinds.split(","):
        for world in [w for w in worlds(kind) if w in allowed]:
            for fault in ("none", *FAULTS):
                seen = [
                    collections.Counter(
                        outcome(server, kind, fault, mode, world) for _ in range(given.repeats)
                    )
                    for mode in MODES
                ]
                cells = [", ".join(f"{n} {what}" for what, n in s.items()) for s in seen]
                print(f"| {kind} | {world} | {fault} | {' | '.join(cells)} |", flush=True)
    server.close()


if __name__ == "__main__":
    main()
