"""From the text of a traceback, as torch keeps it with a graph's nodes, to a place in the source."""

from __future__ import annotations

import linecache
import re

from whynan.model import Site
from whynan.source.trees import expression_of

FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
CARETS = re.compile(r"^\s*[\^~]+\s*$")


def sites_in(text: str) -> list[Site]:
    """Every frame, the innermost one last."""
    found: list[Site] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        frame = FRAME.match(line)
        if frame is not None:
            quoted, marks = (*lines[i + 1 : i + 3], "", "")[:2]
            found.append(_site(frame, quoted, marks))
    return found


def _site(frame: re.Match[str], quoted: str, marks: str) -> Site:
    file, line = frame["file"], int(frame["line"])
    source = linecache.getline(file, line).rstrip("\n")
    site = Site(
        file=file, line=line, end_line=line, column=None, end_column=None,
        function=frame["function"], source=source.strip() or quoted.strip(),
    )  # fmt: skip
    if not CARETS.match(marks) or source.strip() != quoted.strip():
        return site
    shift = source.index(source.strip()) - (len(quoted) - len(quoted.lstrip()))
    begin = len(marks) - len(marks.lstrip()) + shift
    end = len(marks.rstrip()) + shift
    text = source[begin:end]
    if expression_of(text) is None:
        return site
    return Site(
        file=file, line=line, end_line=line, column=begin, end_column=end,
        function=frame["function"], source=source.strip(), expression=text,
    )  # fmt: skip
