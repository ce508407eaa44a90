"""Entries that a mask leaves out: none is left, or one of them is computed with."""

from __future__ import annotations

from collections.abc import Iterator

from whynan.diagnosis.given import place_of
from whynan.diagnosis.makers import LARGEST, MASKS, masked_by
from whynan.model import Cause, Operand, OpRecord, number
from whynan.ops.table import row

INFINITE = frozenset({"inf_minus_inf", "zero_times_inf", "inf_over_inf"})
ALL_OF_IT = LARGEST | {"logsumexp"}
UNGUARDED = frozenset({"division_by_zero", "log_nonpositive"})


def from_mask(mechanism: str, op: OpRecord, culprit: Operand | None) -> Iterator[Cause]:
    x = op.operand(*MASKS)
    stats = (x.slice_stats or x.stats) if x is not None else None
    if mechanism == "all_masked_softmax" and stats is not None:
        text = f"all {stats.count:,} scores of the row are masked"
        yield Cause(code="empty_mask", evidence=text)
    elif mechanism == "empty_reduction" and stats is not None and stats.count == 0:
        yield Cause(code="empty_mask", evidence="the selection is empty")
    elif mechanism == "empty_reduction":
        yield from _ignored(op)
    elif mechanism in INFINITE:
        yield from _infinite(op)
    elif mechanism in UNGUARDED and (softmax := masked_by(culprit)) is not None and not op.derived:
        made = softmax.inputs[0].upstream or culprit.upstream if culprit is not None else ()
        filled = _fill(made)
        where = f"{place_of(filled, op)}: " if filled is not None else ""
        text = f"{where}the entry is masked with -inf, which leaves it a probability of exactly 0"
        yield Cause(code="empty_mask", evidence=text)


def _ignored(op: OpRecord) -> Iterator[Cause]:
    """Of a mean over targets, all of which are to be ignored."""
    target, ignore = op.operand("target"), op.scalar("ignore_index")
    stats = target.stats if target is not None else None
    if (
        stats is not None
        and ignore is not None
        and stats.count
        and stats.min == stats.max == ignore
    ):
        text = f"the batch has no target: {stats.count:,} of {stats.count:,} are {number(ignore)}"
        yield Cause(code="empty_mask", evidence=text)


def _infinite(op: OpRecord) -> Iterator[Cause]:
    """Infinities that the program wrote where a mask is, and that an operation then met."""
    for operand in op.inputs:
        made = operand.upstream
        filled = _fill(made)
        if filled is None or operand.value is None or abs(operand.value) != float("inf"):
            continue
        place = f"{place_of(filled, op)}: "
        # The largest of a row is -inf only if all of it is.
        if any(m.name in ALL_OF_IT and m.value == -float("inf") for m in made):
            text = f"{place}all entries of the row are masked with -inf"
            yield Cause(code="empty_mask", evidence=text)
            return
        written = filled.site.expression if filled.site is not None else ""
        text = f"{place}the mask writes {number(operand.value)} there"
        yield Cause(code="empty_mask", evidence=text + (f", as it stands in `{written}`" if 0 < len(written) < 64 else ""))  # fmt: skip
        return


def _fill(made: tuple[OpRecord, ...]) -> OpRecord | None:
    """What put infinities where a mask is true."""
    for maker in made:
        fills = "fills" in row(maker.name).does or maker.name in ("where", "masked_fill")
        if fills and maker.value is not None and abs(maker.value) == float("inf"):
            return maker
    return None
