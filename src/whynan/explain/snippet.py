"""The source as typed, with the guilty expression underlined."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Literal, NamedTuple

from whynan.model import Site

Quotes = Mapping[str, Mapping[int, str]]

MAX_GAP = 3


class Row(NamedTuple):
    """One line of a snippet: source, or an underline with its label."""

    number: int | None
    text: str
    kind: Literal["source", "origin", "note", "gap"]


def snippet(
    site: Site, label: str, note: tuple[Site, str] | None = None, quotes: Quotes | None = None
) -> list[Row]:
    """The origin's line with carets; above or below it, a line that led there."""
    quotes = quotes or {}
    rows = [*_source_rows(site, quotes), _underline(site, "^", label, "origin", quotes)]
    if note is None or note[0].file != site.file or note[0].line == site.line:
        return rows
    other, text = note
    noted = [*_source_rows(other, quotes), _underline(other, "-", text, "note", quotes)]
    gap: list[Row] = []
    if abs(other.line - site.line) > 1:
        between = range(min(other.line, site.line) + 1, max(other.line, site.line))
        if len(between) <= MAX_GAP:
            lines = [(n, source_line(site.file, n, quotes)) for n in between]
            gap = [Row(n, text, "source") for n, text in lines if text.strip()]
        else:
            gap = [Row(None, "...", "gap")]
    return [*noted, *gap, *rows] if other.line < site.line else [*rows, *gap, *noted]


def source_line(file: str, number: int, quotes: Quotes) -> str:
    """As typed: from a saved run's quotations, or from the file."""
    text = quotes[file].get(number, "") if file in quotes else linecache.getline(file, number)
    return text.rstrip("\n").expandtabs(1)


def _source_rows(site: Site, quotes: Quotes) -> list[Row]:
    return [Row(site.line, source_line(site.file, site.line, quotes) or site.source, "source")]


def _underline(
    site: Site, mark: str, label: str, kind: Literal["origin", "note"], quotes: Quotes
) -> Row:
    text = source_line(site.file, site.line, quotes)
    start = site.column if site.column is not None else len(text) - len(text.lstrip())
    one_line = site.end_line == site.line and site.end_column is not None
    end = site.end_column if one_line and site.end_column is not None else len(text)
    return Row(None, f"{' ' * start}{mark * max(1, end - start)} {label}".rstrip(), kind)
