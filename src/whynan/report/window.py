"""Source lines that are longer than the page: the part around what is underlined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from whynan.explain.snippet import Row

MARKS = ("origin", "note")
BEFORE = 12  # columns that are shown left of an underline
CUT = "..."


def windowed(rows: Sequence[Row], room: int) -> list[Row]:
    """Every source line fits, and the marks stand where they stood.

    >>> rows = [Row(1, "x = " + 40 * "a" + "f(y)", "source"), Row(None, 44 * " " + "^^^^ bad", "origin")]
    >>> [row.text for row in windowed(rows, 24)]
    ['...aaaaaaaaaaaaf(y)', '               ^^^^ bad']
    """
    found: list[Row] = []
    first = 0
    for i, row in enumerate(rows):
        if row.kind == "source":
            below = list(takewhile(lambda r: r.kind in MARKS, rows[i + 1 :]))
            first = _first(row.text, below, room) if len(row.text) > room else 0
            found.append(row._replace(text=_part(row.text, first, room)))
        elif row.kind in MARKS:
            found.append(row._replace(text=_marked(row.text, first, room)))
        else:
            found.append(row)
    return found


def _first(text: str, marks: Sequence[Row], room: int) -> int:
    """The first column that is shown."""
    ends = [(_indent(m.text), _indent(m.text) + _length(m.text)) for m in marks]
    start = min((s for s, _ in ends), default=0)
    end = max((e for _, e in ends), default=0)
    if end <= room - len(CUT):
        return 0
    return max(0, min(start - BEFORE, len(text) + len(CUT) - room))


def _part(text: str, first: int, room: int) -> str:
    shown = CUT + text[first:] if first else text
    return shown if len(shown) <= room else shown[: room - len(CUT)] + CUT


def _marked(text: str, first: int, room: int) -> str:
    if not first:
        indent, length = _indent(text), _length(text)
        label = text[indent + length :]
        return " " * indent + text[indent] * min(length, max(1, room - indent)) + label
    indent = _indent(text) - first + len(CUT)
    length = min(_length(text), max(1, room - indent))
    bare = text.lstrip()
    return " " * indent + bare[0] * length + bare[_length(text) :]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _length(text: str) -> int:
    """Of the marks alone, without their label."""
    return len(text.split(maxsplit=1)[0]) if text.strip() else 0
