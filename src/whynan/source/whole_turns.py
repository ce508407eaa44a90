"""A whole turn of a loop, to be executed once more when the program is in the next one."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType

from whynan.source.bodies import Lead, Leading, NotTwice
from whynan.source.compiled import CannotCompile
from whynan.source.trees import UNREADABLE, Loop
from whynan.source.turns import scope_and_way


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTurn:
    """One turn of a loop, between two times that the program is at one instruction of it."""

    lead: Lead  # which gives its variables back
    is_this: bool  # all that is carried on is given before the instruction: it is this turn, not the last
    # Names that hold what it made, when the program is at the instruction again.
    at_hand: frozenset[str]


def turn_of(code: CodeType, lasti: int) -> WholeTurn | None:
    """Of the innermost loop around it."""
    around = scope_and_way(code, lasti)
    loops = [n for n in around[1] if isinstance(n, Loop)] if around is not None else []
    if around is None or not loops or around[1][-1] is loops[-1]:
        return None
    block = loops[-1].body
    at = next((i for i, node in enumerate(block) if node in around[1]), None)
    lead = Leading(around[0], code, [], loops[-1], holds=False)
    try:
        made = None if at is None else lead.made_of(block)
    except (NotTwice, CannotCompile, *UNREADABLE):
        return None
    if made is None:
        return None
    first, then = lead.given_by(block[:at]), lead.given_by(block[at:])
    is_this = first >= set(made.carried) and not then & set(made.carried)
    at_hand = frozenset(made.made) - (then if is_this else first)
    return WholeTurn(lead=made, is_this=is_this, at_hand=at_hand)
