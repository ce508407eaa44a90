"""The user's text as trees: each text is parsed once, and its places are found there."""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Body = ast.Module | Function
Loop = ast.For | ast.AsyncFor | ast.While
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
QUIET = ("ignore", None, Warning, None, 0)


@lru_cache(maxsize=16)
def parsed(text: str) -> ast.Module:
    """The tree of a text; the same one as long as the text is the same."""
    with _hushed():
        return ast.parse(text)


def tree_of(file: str) -> ast.Module:
    """The tree of a file or of a notebook's cell as the program runs it; empty if there is none."""
    try:
        return parsed("".join(linecache.getlines(file)))
    except UNREADABLE:
        return parsed("")


@lru_cache(maxsize=256)
def expression_of(text: str) -> ast.expr | None:
    """A text as an expression, over however many lines it goes."""
    try:
        with _hushed():
            return ast.parse(f"({text}\n)", mode="eval").body
    except UNREADABLE:
        return None


@contextmanager
def _hushed() -> Iterator[None]:
    """An invalid escape is the program's own business. `catch_warnings` would tell Python that the
    filters have changed, and all warnings that the program has shown once would be shown again."""
    filters: Any = warnings.filters
    filters.insert(0, QUIET)
    try:
        yield
    finally:
        filters.remove(QUIET)


# Statements without blocks, which most are.
SIMPLE = frozenset({
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Raise, ast.Assert, ast.Delete,
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue,
})  # fmt: skip


def statements(body: Iterable[ast.stmt], *, inner: bool = True) -> Iterator[ast.stmt]:
    """Every statement in the order of the source; `inner`: those of functions and classes defined
    there, too. Much quicker than a walk over expressions."""
    waiting = [*body][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if type(node) in SIMPLE:
            continue
        if inner or not isinstance(node, Function | ast.ClassDef):
            waiting += [s for block in blocks(node) for s in block][::-1]


def head(statement: ast.stmt) -> list[ast.AST]:
    """All that its own expressions consist of: of a loop or `with`, those before the block."""
    inner = (ast.stmt, ast.excepthandler, ast.match_case)
    parts = [p for p in ast.iter_child_nodes(statement) if not isinstance(p, inner)]
    return [node for part in parts for node in ast.walk(part)]


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement, in the order of the source."""
    parts = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    yield from (getattr(part, "body", []) for part in parts)
    yield from (getattr(node, name, []) for name in ("orelse", "finalbody"))


def last_word(function: ast.expr | None) -> str | None:
    """`log` of `log` and of `torch.log`; None of what has no name."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def characters(text: str, offset: int) -> int:
    """The parser counts columns in UTF-8 bytes; readers and editors count characters."""
    return (
        min(offset, len(text))
        if text.isascii()
        else len(text.encode()[:offset].decode(errors="ignore"))
    )


def function_of(code: CodeType) -> Body | None:
    """The function that a code object was made of, or the whole module."""
    tree = tree_of(code.co_filename)
    if code.co_name == "<module>":
        return tree
    for node in statements(tree.body):
        if isinstance(node, Function) and node.name == code.co_name:
            begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if begin == code.co_firstlineno:
                return node
    return None


def lambda_of(code: CodeType) -> ast.Lambda | None:
    """The lambda that a code object was made of, if no other one begins on its line."""
    tree = tree_of(code.co_filename)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
    here = [n for n in found if n.lineno == code.co_firstlineno]
    return here[0] if len(here) == 1 else None


def statement_at(
    around: Body | ast.ClassDef, line: int, column: int | None = None, *, inner: bool = False
) -> ast.stmt | None:
    """The innermost statement on a line; the column, in bytes, tells `a = f(x); print(a)` apart."""
    found = statements(around.body, inner=inner)
    here = [s for s in found if s.lineno <= line <= (s.end_lineno or s.lineno)]
    if column is not None:
        at = (line, column)
        exact = [s for s in here if (s.lineno, s.col_offset) <= at < _end(s)]
        here = exact or here
    return max(here, key=lambda s: (s.lineno, s.col_offset), default=None)


def _end(node: ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
