"""Which setting of the user's an origin goes back to: an eps of 0, a tiny temperature."""

from __future__ import annotations

from collections.abc import Iterable

from whynan.model import Evidence, OpRecord, Setting
from whynan.seam.sites import own_places
from whynan.source.settings import lost_numbers, odd_numbers, setting_behind, setting_named


def setting_of(evidence: Evidence) -> Setting | None:
    """The one number that explains the origin and that stands in the user's own text."""
    origin = evidence.origin
    is_computed = evidence.origin_kind in ("operation", "number")
    if not is_computed or origin.phase in ("optimizer", "data"):
        return None
    return _first_set(odd_numbers(origin))


def small_eps_of(evidence: Evidence) -> Setting | None:
    """Where the eps is set that an operand's type rounds to 0."""
    if evidence.origin_kind != "operation":
        return None
    return _first_set(lost_numbers(evidence.origin))


def set_somewhere(name: str, value: float) -> Setting | None:
    """The one place that gives an argument of that name this very number."""
    return setting_named([name], value, *own_places())


def _first_set(numbers: Iterable[tuple[OpRecord, str, float]]) -> Setting | None:
    places = own_places()
    for op, name, value in numbers:
        found = setting_behind(op.site, [name], value, *places) if op.site is not None else None
        if found is not None:
            return found
    return None
