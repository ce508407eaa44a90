"""What each rank knows of a harm, and how the job's one report is made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whynan.codec import decode, encode
from whynan.model import Evidence

NOT_BORN_HERE = ("entry", "unseen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One rank's word: what it saw, and whether the value was bad before any exchange."""

    rank: int
    step: int
    evidence: tuple[Evidence, ...] = ()
    loss_was_bad: bool = False
    exchange: str | None = None  # what brings other ranks' values here
    error: str | None = None  # the exception that ended this rank

    def to_json(self) -> str:
        return json.dumps(encode(self), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Statement:
        return decode(Statement, json.loads(text))

    @property
    def born_here(self) -> bool:
        """Whether the recording, or at least this rank's own loss, says that it began here."""
        if not self.evidence:
            return False
        first = self.evidence[0]
        return self.loss_was_bad or not (
            first.origin_kind in NOT_BORN_HERE or came_by(first) is not None
        )


def came_by(evidence: Evidence) -> str | None:
    """The collective that the recording names as the first to hold a non-finite value."""
    op = evidence.origin.op
    return op.split(".")[1].strip("_") if op.startswith("c10d") else None


def _strength(statement: Statement) -> tuple[bool, bool, int, int]:
    """A recorded origin before a bad loss before a bad gradient; then the earliest."""
    first = statement.evidence[0]
    recorded = statement.born_here and first.origin_kind != "unseen"
    return not recorded, not statement.born_here, first.step, statement.rank


def merge(statements: Sequence[Statement], silent: Sequence[int]) -> tuple[Evidence, ...]:
    """The guilty rank's evidence first, with what every other rank has to say beside it.

    A rank that only received the value adds a line, not an anomaly of its own.
    """
    harmed = sorted((s for s in statements if s.evidence), key=_strength)
    if not harmed:
        return ()
    guilty = harmed[0]
    others = [s for s in statements if s is not guilty]
    lines = [_line(s, guilty) for s in sorted(others, key=lambda s: s.rank)]
    lines += [
        f"rank {rank} said nothing in time: it ended, or waits for another" for rank in silent
    ]
    first = replace(guilty.evidence[0], rank=guilty.rank, ranks=tuple(lines))
    return (first, *[replace(e, rank=guilty.rank) for e in guilty.evidence[1:]])


def _line(statement: Statement, guilty: Statement) -> str:
    who = f"rank {statement.rank}"
    ended = f", then {statement.error}" if statement.error else ""
    if not statement.evidence:
        return f"{who}: no harm by step {statement.step}{ended}"
    first = statement.evidence[0]
    at = f"{first.subject}, step {first.step}"
    if statement.born_here:
        site = first.origin.site
        where = f" at {site}" if site else ""
        return f"{who}: went bad by itself as well{where} ({at}){ended}"
    how = came_by(first) or statement.exchange
    if guilty.born_here and how:
        return f"{who}: finite until it arrived by {how} ({at}){ended}"
    return f"{who}: non-finite {at}; whether it began there is not known{ended}"
