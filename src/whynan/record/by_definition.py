"""What is not finite and yet the right answer.

Decibels of a noise of exactly 0, the log of a density of 0, the recall of a class that does not occur.
"""

from __future__ import annotations

import math

from whynan.model import OpRecord
from whynan.ops.table import reading, row, that
from whynan.record.ancestry import Node, path_between
from whynan.record.judging import value_of
from whynan.record.reads import value_after
from whynan.record.records import Record, inside_of
from whynan.record.upstream import Upstream

MOST = 32  # operations that made a 0
CARRYING = that("copies", "squares", "multiplies", "picks", "positive") | reading("join")
SHOWING = that("copies", "picks", "keeps") | reading("join") | reading("move")
KEEPING = SHOWING | {"sum"}
DIFFERENCES = frozenset({*row("sub").spellings, *row("mse_loss").spellings})
DENSITY = "log_prob"


def is_by_definition(start: Node, origin: Node, upstream: Upstream) -> bool:
    """Whether nothing went wrong on the way to what the program shows."""
    record, shown = origin.record, value_of(start)
    if record is None or shown is None or isinstance(shown, complex):
        return False
    passed = [n.record for n in path_between(start, origin) if n.record is not None]
    if not math.isinf(shown):  # itself, not a mean that it spoils
        is_itself = all(r is record or r.info.base in SHOWING for r in passed)
        return is_itself and _is_share_of_nothing(origin, record, upstream)
    known = row(record.info.base)
    logarithmic = "log_nonpositive" in known.fails
    made = _made_zero(origin, upstream)
    if logarithmic and _is_density(record) and any("compares" in row(op.name).does for op in made):
        return True
    ratio = "division_by_zero" in known.fails and any(map(_is_logarithm, passed))
    return (logarithmic or ratio) and _is_match(made)


def _is_share_of_nothing(origin: Node, record: Record, upstream: Upstream) -> bool:
    """One entry of a table, of which other entries are finite, where nothing is divided by nothing: both
    count things."""
    made = value_after(record, origin.k)
    if record.info.base != "div" or made is None or not bool(made.isfinite().any()):
        return False
    operands = list(upstream.makers_of(origin))
    zeros = [operand.value == 0 for operand, _ in operands]
    return zeros == [True, True] and all(_counts(node, upstream) for _, node in operands)


def _counts(node: Node, upstream: Upstream) -> bool:
    """Whether a 0 was a whole number before it became a float, or nothing was put there."""
    for _ in range(MOST):
        if not node.ref.dtype.is_floating_point:
            return True  # also one that was counted before the recording
        if node.record is None:
            return False
        bare = upstream.frozen(node)
        if bare.untouched:
            return True
        if bare.name not in KEEPING:
            return False
        before = [n for o, n in upstream.makers_of(node) if o.value in (0, False)]
        if len(before) != 1:
            return False
        node = before[0]
    return False


def _made_zero(origin: Node, upstream: Upstream) -> list[OpRecord]:
    """All that made the 0 which the operation was given."""
    pending, found = [origin], list[OpRecord]()
    while pending and len(found) < MOST:
        node = pending.pop()
        for operand, maker in upstream.makers_of(node):
            if operand.value == 0 and maker.record is not None:
                bare = upstream.frozen(maker)
                found.append(bare)
                if bare.name not in DIFFERENCES:
                    pending.append(maker)
    return found


def _is_match(made: list[OpRecord]) -> bool:
    """An error that is 0 because all values are equal to those that they are compared with."""
    differences = [op for op in made if op.name in DIFFERENCES]
    others = [op for op in made if op.name not in DIFFERENCES]
    carried = all(op.name in CARRYING or not op.inputs or op.name == "lift_fresh" for op in others)
    return bool(differences) and carried and len(made) < MOST and all(map(_are_equal, differences))


def _are_equal(difference: OpRecord) -> bool:
    """Of values less their own mean it is a constant that has no spread."""
    values = [o.value for o in difference.inputs if o.value is not None]
    centred = any((o.source or "").endswith("mean") for o in difference.inputs)
    return len(values) == 2 and values[0] == values[1] and not centred


def _is_logarithm(record: Record) -> bool:
    return "log_nonpositive" in row(record.info.base).fails


def _is_density(record: Record) -> bool:
    frames = record.frames
    names = [inside_of(record) or "", frames.code.co_name if frames is not None else ""]
    return any(name.endswith(DENSITY) for name in names)
