"""From a code object and an instruction to the line and columns a reader sees."""

from __future__ import annotations

import ast
import linecache
import re
from functools import lru_cache
from types import CodeType, FrameType

from whynan.model import Site

ASSIGNS = re.compile(r"\s*=(?!=)")


@lru_cache(maxsize=4096)
def site_at(code: CodeType, lasti: int) -> Site:
    """The place in the source of the instruction at `lasti`."""
    line, end_line, column, end_column = list(code.co_positions())[lasti // 2]
    line = line or code.co_firstlineno
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


def written_at(site: Site) -> str:
    """The expression, or the line; of `x[0] = nan` the interpreter's position is `x[0]` only."""
    text = site.expression or site.source
    rest = site.source.partition(text)[2]
    return text + rest.partition(";")[0] if ASSIGNS.match(rest) else text


def in_one_loop(first: Site, second: Site) -> bool:
    """Whether two places of a function are repeated together."""
    if (first.file, first.function) != (second.file, second.function):
        return False
    return any(a <= first.line <= b and a <= second.line <= b for a, b in _loops(first.file))


@lru_cache(maxsize=64)
def _loops(file: str) -> tuple[tuple[int, int], ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.AsyncFor | ast.While)]
    return tuple((n.body[0].lineno, n.end_lineno or n.lineno) for n in loops)


def called_at(site: Site) -> str | None:
    """The last word of the call that stands there: `logdet`; None if it is no call."""
    try:
        tree = ast.parse(f"({site.expression}\n)", mode="eval").body
    except SyntaxError:
        return None
    func = tree.func if isinstance(tree, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else None


def argument_at(caller: FrameType) -> str:
    """What stands first between the parentheses of the running call, as typed; "" if a literal."""
    try:
        tree = ast.parse(site_at(caller.f_code, caller.f_lasti).expression, mode="eval").body
    except SyntaxError:
        return ""
    literals = (ast.Dict, ast.List, ast.Tuple, ast.Constant)
    if not isinstance(tree, ast.Call) or not tree.args or isinstance(tree.args[0], literals):
        return ""
    return ast.unparse(tree.args[0])


def _characters(text: str, column: int | None) -> int | None:
    """The interpreter counts columns in UTF-8 bytes; readers and editors count characters."""
    return None if column is None else len(text.encode()[:column].decode(errors="ignore"))


def _expression(
    file: str, line: int, end_line: int, column: int | None, end_column: int | None
) -> str:
    if column is None or end_column is None:
        return ""
    lines = [linecache.getline(file, n).rstrip("\n") for n in range(line, end_line + 1)]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = "\n".join(part.strip() for part in lines)
    try:
        ast.parse(f"({text}\n)", mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return text
