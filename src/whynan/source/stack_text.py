"""From the text of a traceback, as torch keeps it with a graph's nodes, to a place in the source."""

from __future__ import annotations

import ast
import linecache
import re

from whynan.model import Site
from whynan.source.trees import expression_of, last_word

FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
CARETS = re.compile(r"^\s*[\^~]+\s*$")


def sites_in(text: str, operation: str) -> list[Site]:
    """Every frame, the innermost one last; `operation` is what runs there."""
    found: list[Site] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        frame = FRAME.match(line)
        if frame is not None:
            quoted, marks = (*lines[i + 1 : i + 3], "", "")[:2]
            found.append(_site(frame, quoted, marks, operation))
    return found


def _site(frame: re.Match[str], quoted: str, marks: str, operation: str) -> Site:
    file, line = frame["file"], int(frame["line"])
    source = linecache.getline(file, line).rstrip("\n")
    begin = end = None
    text = ""
    if CARETS.match(marks) and source.strip() == quoted.strip():
        shift = source.index(source.strip()) - (len(quoted) - len(quoted.lstrip()))
        begin = len(marks) - len(marks.lstrip()) + shift
        text = _marked(source[begin : len(marks.rstrip()) + shift], operation)
        end = begin + len(text)
    return Site(
        file=file, line=line, end_line=line, column=begin if text else None,
        end_column=end if text else None, function=frame["function"],
        source=source.strip() or quoted.strip(), expression=text,
    )  # fmt: skip


def _marked(text: str, operation: str) -> str:
    """The expression at the beginning of what is marked: torch 2.13 often marks more than that.

    >>> _marked("torch.expm1(x))", "expm1"), _marked("torch.log(f) - g", "log"), _marked("a - b)", "sub")
    ('torch.expm1(x)', 'torch.log(f)', 'a - b')
    """
    longest = ""
    for end in range(1, len(text) + 1):
        tree = expression_of(text[:end])
        if tree is None:
            continue
        longest = text[:end]
        if isinstance(tree, ast.Call) and last_word(tree.func) == operation:
            break
    return longest.rstrip()
