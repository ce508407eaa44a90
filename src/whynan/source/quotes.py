"""Evidence that can travel: it carries the source lines it speaks of, under short paths."""

from __future__ import annotations

import dataclasses
import linecache
import os
from collections.abc import Callable, Iterator
from typing import Any

from whynan.model import Evidence, Site
from whynan.source.cells import cell_name

AROUND = 5  # lines of context on either side


def quoted(evidence: Evidence) -> Evidence:
    """With every line a report may show; paths below the working directory become relative."""
    if evidence.quotes:  # it has travelled before
        return evidence
    quotes: dict[str, dict[int, str]] = {}
    for site in sites_in(evidence):
        lines = quotes.setdefault(short_path(site.file), {})
        for number in range(max(1, site.line - AROUND), site.end_line + AROUND + 1):
            if text := linecache.getline(site.file, number):
                lines[number] = text.rstrip("\n")
    return dataclasses.replace(renamed(evidence, short_path), quotes=quotes)


def carrying(evidence: Evidence) -> Evidence:
    """With an entry, if an empty one, for every file: none of them is looked up."""
    files = {site.file for site in sites_in(evidence)}
    return dataclasses.replace(evidence, quotes={**{f: {} for f in files}, **evidence.quotes})


def renamed(evidence: Evidence, name: Callable[[str], str]) -> Evidence:
    """With other names for its files."""
    quotes = {name(file): lines for file, lines in evidence.quotes.items()}
    result: Evidence = _renamed(dataclasses.replace(evidence, quotes={}), name)
    return dataclasses.replace(result, quotes=quotes)


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


def _renamed(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(item, name) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changes = {f.name: _renamed(getattr(value, f.name), name) for f in dataclasses.fields(value)}
    if isinstance(value, Site):
        changes["file"] = name(value.file)
    return dataclasses.replace(value, **changes)


def short_path(file: str) -> str:
    """Relative to the working directory where that is below it."""
    if cell := cell_name(file):
        return cell
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory is gone; another drive
        return file
    return file if relative.startswith("..") else relative
