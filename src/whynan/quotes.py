"""Evidence that can travel: it carries the source lines it speaks of, under short paths."""

from __future__ import annotations

import dataclasses
import linecache
import os
from collections.abc import Iterator
from typing import Any

from whynan.model import Evidence, Site

AROUND = 5  # lines of context on either side


def quoted(evidence: Evidence) -> Evidence:
    """With every line a report may show; paths below the working directory become relative."""
    if evidence.quotes:  # it has travelled before
        return evidence
    quotes: dict[str, dict[int, str]] = {}
    for site in sites_in(evidence):
        lines = quotes.setdefault(_short(site.file), {})
        for number in range(max(1, site.line - AROUND), site.end_line + AROUND + 1):
            if text := linecache.getline(site.file, number):
                lines[number] = text.rstrip("\n")
    short: Evidence = _shortened(evidence)
    return dataclasses.replace(short, quotes=quotes)


def sites_in(value: Any) -> Iterator[Site]:
    """Every place that a value speaks of."""
    if isinstance(value, Site):
        yield value
    if isinstance(value, tuple):
        for item in value:
            yield from sites_in(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from sites_in(getattr(value, field.name))


def _shortened(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_shortened(item) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changes = {f.name: _shortened(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Site):
        changes["file"] = _short(value.file)
    return dataclasses.replace(value, **changes)


def _short(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if relative.startswith("..") else relative
