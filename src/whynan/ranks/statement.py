"""What each rank knows of a harm, and how the job's one report is made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whynan.codec import decode, encode
from whynan.model import Evidence, OpRecord
from whynan.ops.table import that
from whynan.record.schema import EXCHANGES
from whynan.watching.signs import is_conclusive

MODERATE = 1e12  # products and sums of such values stay far from float32's limit
UNPROVEN = ("entry", "unseen", "uninitialised")  # a collective fills memory that it asked for
CARRIES = that("copies", "keeps") | {"mul", "div"}
PHASES = ("init", "data", "forward", "backward", "optimizer")  # of a step, as they follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One rank's word: what it saw, and whether the value was bad before any exchange."""

    rank: int
    step: int
    evidence: tuple[Evidence, ...] = ()
    loss_was_bad: bool = False
    exchange: str | None = None  # what brings other ranks' values here
    error: str | None = None  # the exception that ended this rank
    how: str = "live"  # its evidence was seen

    def to_json(self) -> str:
        return json.dumps(encode(self), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Statement:
        return decode(Statement, json.loads(text))

    @property
    def strength(self) -> int:
        """How well this rank proves that it began there; 0 is best, 3 says nothing."""
        if self.evidence and is_own(self.evidence[0]):
            return 0
        if self.evidence and _came_with_data(self.evidence[0]):
            return 1
        return 2 if self.loss_was_bad else 3


def _came_with_data(evidence: Evidence) -> bool:
    return evidence.origin_kind == "entry" and is_conclusive(evidence)


def is_own(evidence: Evidence) -> bool:
    """Whether an operation of this rank made it, as far as the recording shows."""
    if evidence.origin_kind in UNPROVEN or evidence.origin.op.startswith(EXCHANGES):
        return False
    return not _was_overwritten(evidence.origin)


def _was_overwritten(origin: OpRecord) -> bool:
    """A collective writes in the background, where no recorder sees it: the last operation known
    to have written there seems to have made a NaN, out of moderate values that cannot give one."""
    exact, value = origin.exact, origin.value
    if origin.node is not None and "AccumulateGrad" in origin.node and origin.name in CARRIES:
        return True  # DistributedDataParallel's way into and out of its buckets
    if exact is None or value is None or not math.isfinite(exact) or math.isfinite(value):
        return False
    ends = [e for o in origin.inputs if o.stats for e in (o.stats.min, o.stats.max)]
    bad = any(o.stats is None or o.stats.nonfinite for o in origin.inputs)
    return not bad and all(e is not None and abs(e) < MODERATE for e in ends)


def with_sent(evidence: tuple[Evidence, ...], sent: Evidence | None) -> tuple[Evidence, ...]:
    """What the recorder knew of a bad value when it left this rank explains more than what
    came back; but only a value that did harm is spoken of."""
    if not evidence or sent is None or is_own(evidence[0]) or _came_with_data(evidence[0]):
        return evidence
    if not (is_own(sent) or _came_with_data(sent)):
        return evidence
    first = evidence[0]
    return (
        replace(sent, sink=first.sink, subject=first.subject, sink_site=first.sink_site),
        *evidence[1:],
    )


def guilty_of(statements: Sequence[Statement]) -> Statement | None:
    """Who proves it best; of several, where it began first."""
    return min((s for s in statements if s.evidence), key=_order, default=None)


def _order(statement: Statement) -> tuple[int, int, int, int]:
    first = statement.evidence[0]
    phase = PHASES.index(first.origin.phase)
    return statement.strength, first.step, phase, statement.rank


def merge(statements: Sequence[Statement], silent: Sequence[int]) -> tuple[Evidence, ...]:
    """The guilty rank's evidence first, with what every other rank has to say beside it.

    A rank that only received the value adds a line, not an anomaly of its own.
    """
    guilty = guilty_of(statements)
    if guilty is None:
        return ()
    others = [s for s in statements if s is not guilty]
    lines = [_line(s, guilty) for s in sorted(others, key=lambda s: s.rank)]
    lines += [
        f"rank {rank} said nothing in time: it ended, or waits for another" for rank in silent
    ]
    if guilty.strength == 3:
        lines.insert(0, "on which rank it began is not known: it was seen after the exchange only")
    first = replace(guilty.evidence[0], rank=guilty.rank, ranks=tuple(lines))
    return (first, *[replace(e, rank=guilty.rank) for e in guilty.evidence[1:] if is_own(e)])


def _line(statement: Statement, guilty: Statement) -> str:
    who = f"rank {statement.rank}"
    ended = f", then {statement.error}" if statement.error else ""
    if not statement.evidence:
        return f"{who}: no harm by step {statement.step}{ended}"
    first = statement.evidence[0]
    at = f"{first.subject}, step {first.step}"
    if statement.strength < 2 or statement.strength == guilty.strength == 2:
        site = first.origin.site
        where = f" at {site}" if site else ""
        return f"{who}: went bad by itself as well{where} ({at}){ended}"
    how = statement.exchange
    if guilty.strength < 3 and how:
        return f"{who}: finite until it arrived by {how} ({at}){ended}"
    return f"{who}: non-finite {at}; whether it began there is not known{ended}"
