"""What a job of ranks must show, for every way to shard a model, fault and mode."""

from __future__ import annotations

from pathlib import Path

from tests.ranks.forked import PROGRAMS, Ended

SHARDED = PROGRAMS / "matrix_ranks.py"
STAGED = PROGRAMS / "stage_ranks.py"
KINDS = {
    "ddp": SHARDED, "no_sync": SHARDED, "join": SHARDED, "joined": SHARDED, "root": SHARDED,
    "layers": SHARDED, "mixed": SHARDED, "offload": SHARDED, "tp": SHARDED, "2d": SHARDED,
    "by_hand": SHARDED, "accumulate": SHARDED, "pipeline": STAGED, "send": STAGED,
}  # fmt: skip
FAULTS = ("forward", "backward", "data", "overflow")
MODES = ("auto", "trace")


def worlds(kind: str) -> tuple[int, ...]:
    """How many ranks it can have."""
    return (4,) if kind == "2d" else (2,) if kind == "joined" else (2, 4)


def marked(program: Path, mark: str) -> int:
    lines = program.read_text().splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith(f"# LINE: {mark}"))


def judge_healthy(done: Ended, plain: Ended) -> str:
    """ "right", or what was not."""
    if done.codes != [0] * len(done.codes):
        return f"exit codes {done.codes}"
    if done.digests != plain.digests or len(done.digests) != len(done.codes):
        return "other results than without whynan"
    if done.err != plain.err:
        return "said something"
    return f"left {done.left}" if done.left else "right"


def judge(done: Ended, kind: str, fault: str) -> str:
    """The same of a job that fails: guilty is the last rank, but for data that the first one reads."""
    world, program = len(done.codes), KINDS[kind]
    if done.codes != [3] * world:
        return f"exit codes {done.codes}"
    if any("a collective of whynan's own" in text for text in done.err):
        return "a collective of whynan's own"
    if any("stepped aside" in text for text in done.err):
        return "stepped aside"
    if sum(text.count("error[") for text in done.err) != 1 or done.report is None:
        return "not one report"
    found = done.report["anomalies"][0]
    staged = program is STAGED
    ranks = {world - 1}
    if fault == "data" and staged:
        ranks = {0}
    elif fault == "overflow":  # of every rank
        ranks = set(range(world))
    if kind == "joined" and done.report["reproduced"] == "no" and found["rank"] == world - 1:
        return "right rank, not repeated"  # rank 0 makes no steps any more
    line = (found["location"] or {}).get("line")
    marks = [fault] if fault != "overflow" else ["forward", *["product"] * staged]
    if found["rank"] not in ranks or line not in [marked(program, m) for m in marks]:
        return f"rank {found['rank']}, line {line}, {done.report['reproduced']}"
    return f"left {done.left}" if done.left else "right"
