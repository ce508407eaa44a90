"""Which setting of the user's an origin goes back to: an eps of 0, a tiny temperature."""

from __future__ import annotations

import os
from collections.abc import Iterable

from whynan.model import Evidence, OpRecord, Setting
from whynan.seam.sites import own_files
from whynan.source.settings import (
    Written,
    lost_numbers,
    odd_numbers,
    setting_behind,
    settings_named,
)


def setting_of(evidence: Evidence) -> Setting | None:
    """The one number that explains the origin and that stands in the user's own text."""
    origin = evidence.origin
    if evidence.origin_kind not in ("operation", "number") or evidence.origin.phase in (
        "optimizer",
        "data",
    ):
        return None
    return _first_set(odd_numbers(origin))


def small_eps_of(evidence: Evidence) -> Setting | None:
    """Where the eps is set that an operand's type rounds to 0."""
    return (
        _first_set(lost_numbers(evidence.origin)) if evidence.origin_kind == "operation" else None
    )


def set_somewhere(name: str, value: float) -> Setting | None:
    """The one place that gives an argument of that name this very number."""
    return _told(settings_named([name], value, *_places()), value)


def _first_set(numbers: Iterable[tuple[OpRecord, str, float]]) -> Setting | None:
    places = _places()
    for op, name, value in numbers:
        found = setting_behind(op.site, [name], value, *places) if op.site is not None else None
        if found is not None:
            return _told(found, value)
    return None


def _places() -> tuple[list[str], list[str]]:
    files = [*own_files()]
    return files, list(dict.fromkeys([os.getcwd(), *(os.path.dirname(f) for f in files)]))


def _told(found: Written | None, value: float) -> Setting | None:
    if found is None:
        return None
    return Setting(name=found.name, value=value, file=found.file, line=found.line, text=found.text)
