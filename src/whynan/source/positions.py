"""From a code object and an instruction to the line and columns a reader sees."""

from __future__ import annotations

import ast
import linecache
import re
from functools import lru_cache
from types import CodeType, FrameType

from whynan.model import Site
from whynan.source.trees import (
    Loop,
    characters,
    expression_of,
    last_word,
    statement_at,
    statements,
    tree_of,
)

ASSIGNS = re.compile(r"\s*=(?!=)")


@lru_cache(maxsize=4096)
def site_at(code: CodeType, lasti: int) -> Site:
    """The place in the source of the instruction at `lasti`."""
    line, end_line, column, end_column = list(code.co_positions())[lasti // 2]
    line = line or code.co_firstlineno
    end_line = end_line or line
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    last = linecache.getline(code.co_filename, end_line).rstrip("\n")
    column = None if column is None else characters(text, column)
    end_column = None if end_column is None else characters(last, end_column)
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


def node_at(site: Site) -> ast.expr | None:
    """The expression that stands there, in the tree of its file."""
    statement = statement_at(tree_of(site.file), site.line, inner=True)
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.expr) and is_at(node, site):
            return node
    return None


def site_of_node(code: CodeType, node: ast.expr | ast.stmt) -> Site:
    """The place of an expression or statement of that function or module."""
    file, line, end_line = code.co_filename, node.lineno, node.end_lineno or node.lineno
    text, last = linecache.getline(file, line), linecache.getline(file, end_line).rstrip("\n")
    column, end_column = (
        characters(text, node.col_offset),
        characters(last, node.end_col_offset or 0),
    )
    return Site(
        file=file, line=line, end_line=end_line, column=column, end_column=end_column,
        function=code.co_qualname, source=text.strip(),
        expression=_expression(file, line, end_line, column, end_column),
    )  # fmt: skip


def is_at(node: ast.expr, site: Site) -> bool:
    """Whether the expression stands at the place, from its first column to its last."""
    if (node.lineno, node.end_lineno) != (site.line, site.end_line):
        return False
    begin = characters(linecache.getline(site.file, node.lineno), node.col_offset)
    end = characters(linecache.getline(site.file, site.end_line), node.end_col_offset or 0)
    return (begin, end) == (site.column, site.end_column)


def in_one_loop(first: Site, second: Site) -> bool:
    """Whether two places of a function are repeated together."""
    if (first.file, first.function) != (second.file, second.function):
        return False
    begin, end = sorted((first.line, second.line))
    loops = (n for n in statements(tree_of(first.file).body) if isinstance(n, Loop))
    return any(n.body[0].lineno <= begin and end <= (n.end_lineno or 0) for n in loops)


def called_at(site: Site) -> str | None:
    """The last word of the call that stands there: `logdet`; None if it is no call."""
    tree = expression_of(site.expression)
    return last_word(tree.func) if isinstance(tree, ast.Call) else None


def argument_at(caller: FrameType) -> str:
    """What stands first between the parentheses of the running call, as typed; "" if a literal."""
    tree = expression_of(site_at(caller.f_code, caller.f_lasti).expression)
    literals = (ast.Dict, ast.List, ast.Tuple, ast.Constant)
    if not isinstance(tree, ast.Call) or not tree.args or isinstance(tree.args[0], literals):
        return ""
    return ast.unparse(tree.args[0])


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
    return text if expression_of(text) is not None else ""
