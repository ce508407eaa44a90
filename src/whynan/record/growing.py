"""Values that grow from one round of a loop to the next: a solver, a recurrence, a roll-out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from whynan.model import Evidence, Growth
from whynan.record.reads import given, value_before
from whynan.record.records import Record
from whynan.seam.devices import double

ROUNDS = 4
MAX_LOOKED_AT = 400  # rounds
GREW = 1e6  # times


def growth_of(evidence: Evidence, records: Mapping[int, Record]) -> Growth | None:
    """What the line of an overflow was given before, if it grew by far, nearly each time."""
    origin = records.get(evidence.origin.index)
    if origin is None or origin.frames is None or origin.derived:
        return None
    rounds = [
        record
        for index, record in [*records.items()]
        if index <= evidence.origin.index
        and record.step == origin.step
        and record.frames == origin.frames
        and record.info is origin.info
        and not record.derived
    ]
    known = [size for r in rounds[-MAX_LOOKED_AT:] if (size := _size(r)) is not None]
    if len(known) < ROUNDS:
        return None
    least = min(known[: len(known) // 2])
    rises = sum(b > a for a, b in pairwise(known))
    if known[-1] < GREW * max(least, 1e-6) or rises < 0.7 * (len(known) - 1):
        return None
    return Growth(rounds=len(known), first=least, last=known[-1])


def _size(record: Record) -> float | None:
    """The largest finite value of its floating operands."""
    sizes = []
    for part in given(record):
        value = value_before(record, part.whole()) if part.ref.dtype.is_floating_point else None
        if value is not None and value.numel():
            sizes.append(float(double(value).abs().max()))
    return max((s for s in sizes if math.isfinite(s)), default=None)
