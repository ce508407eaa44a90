"""From the running stack to the user's own line, without torch."""

from __future__ import annotations

import ast
import linecache
import os
import sysconfig
from types import FrameType

from whynan.model import Site

_own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_stdlib = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or whynan."""
    if filename.startswith("<"):
        return not filename.startswith(("<ipython", "<stdin", "<doctest"))
    path = os.path.realpath(filename)
    return path.startswith((_own, _stdlib)) or f"{os.sep}site-packages{os.sep}" in path


def site_of(frame: FrameType | None) -> Site | None:
    """The innermost line that belongs to no library."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    line, end_line, column, end_column = list(code.co_positions())[frame.f_lasti // 2]
    line = line or frame.f_lineno
    end_line = end_line or line
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    last = linecache.getline(code.co_filename, end_line).rstrip("\n")
    column, end_column = _characters(text, column), _characters(last, end_column)
    return Site(
        file=code.co_filename,
        line=line,
        end_line=end_line,
        column=column,
        end_column=end_column,
        function=code.co_qualname,
        source=text.strip(),
        expression=_expression(code.co_filename, line, end_line, column, end_column),
    )


def _characters(text: str, column: int | None) -> int | None:
    """The interpreter counts columns in UTF-8 bytes; readers count characters."""
    return None if column is None else len(text.encode()[:column].decode(errors="ignore"))


def _expression(
    file: str, line: int, end_line: int, column: int | None, end_column: int | None
) -> str:
    if column is None or end_column is None:
        return ""
    lines = [linecache.getline(file, n).rstrip("\n") for n in range(line, end_line + 1)]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = "\n".join(part.strip() for part in lines)
    try:
        ast.parse(f"({text}\n)", mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return text
