"""Which torch whynan works with, and what is missing in this one."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from whynan.seam import private  # noqa: F401  # fills the table
from whynan.seam.names import NAMES, NOTHING, Name
from whynan.seam.versions import HERE, release


class Row(NamedTuple):
    """One name of torch, for a reader."""

    name: str
    since: str
    is_present: bool
    instead: str


def table() -> list[Row]:
    """Every name that whynan takes from the inside of torch."""
    return [
        Row(name.path, name.since, name.is_present(), name.instead or "needed: whynan refuses")
        for name in NAMES.values()
    ]


def missing() -> list[Name]:
    """The names without which whynan cannot work, and which this torch lacks."""
    return [name for name in NAMES.values() if name.is_needed and not name.is_present()]


def losses() -> list[str]:
    """What this torch does without, one sentence each; nothing is lost in silence."""
    asked = [n for n in NAMES.values() if not n.is_needed and not n.is_unasked]
    absent = [n for n in asked if not n.is_present()]
    sentences = [n.lost for n in absent if n.lost != NOTHING and not _is_past(n)]
    return list(dict.fromkeys(sentences))


@cache
def remark() -> str | None:
    """The same in one line, for a report."""
    lost = [sentence.rstrip(".") for sentence in losses()]
    if not lost:
        return None
    told = "; ".join(sentence[0].lower() + sentence[1:] for sentence in lost)
    version = torch.__version__.split("+")[0]
    return f"torch {version} lacks a name: {told}"


def _is_past(name: Name) -> bool:
    return bool(name.until) and release(name.until) < HERE
