"""A last batch of a single sample, for which statistics over the batch do not exist: left out by the loader."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import that
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.project import Project
from whynan.repair.source import Source

DECIDED = frozenset({"drop_last", "batch_sampler"})


def propose(case: Case) -> Iterator[Candidate]:
    """A spread over the first dimension, of one row: 0 by another divisor, and then it divides."""
    stats = case.culprit.stats if case.culprit is not None else None
    if case.mechanism != "empty_reduction" or case.forward_op not in that("spread"):
        return
    if stats is None or len(stats.shape) < 2 or stats.shape[0] != 1 or stats.count < 2:
        return
    if not case.anomaly.evidence.around.loads:
        return
    found = [(source, call) for source in Project(case).mentioning("DataLoader") for call in _loaders(source)]  # fmt: skip
    shuffled = [(s, call) for s, call in found if _option(call, "shuffle") is not None]
    found = shuffled if len(found) > 1 else found
    if len(found) != 1 or any(_option(found[0][1], name) is not None for name in DECIDED):
        return
    source, call = found[0]
    given = [source.code(arg).rstrip(", \n") for arg in call.args]
    text = f"{source.code(call.func)}({', '.join([*given, 'drop_last=True'])})"
    title = "leave out a last batch that is not full: statistics over a single sample do not exist"
    yield from case.change(Edit(source).replace(call, text), "drop_last", title, Tier.GUARD)


def _loaders(source: Source) -> list[cst.Call]:
    calls = source.every(cst.Call)
    return [call for call in calls if source.code(call.func).split(".")[-1] == "DataLoader"]


def _option(call: cst.Call, name: str) -> cst.Arg | None:
    return next((a for a in call.args if a.keyword is not None and a.keyword.value == name), None)
