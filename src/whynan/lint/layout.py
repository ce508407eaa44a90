"""How a replacement sits in its line: brackets where they are needed, lines no longer than the file's."""

from __future__ import annotations

import ast
import keyword
import math
import re

from whynan.lint.source import Position, Source
from whynan.source.trees import expression_of, parsed

ATOM = 20
RANKS: dict[type, int] = {
    ast.Pow: 18, ast.USub: 17, ast.UAdd: 17, ast.Invert: 17, ast.Mult: 16, ast.Div: 16,
    ast.MatMult: 16, ast.FloorDiv: 16, ast.Mod: 16, ast.Add: 15, ast.Sub: 15, ast.LShift: 14,
    ast.RShift: 14, ast.BitAnd: 13, ast.BitXor: 12, ast.BitOr: 11, ast.Compare: 10, ast.Not: 9,
    ast.And: 8, ast.Or: 7, ast.IfExp: 6, ast.Lambda: 5, ast.NamedExpr: 4,
}  # fmt: skip
LIMITS = (79, 88, 100, 120)
DEFAULT_LIMIT = 100
MANY_LINES = 100  # a shorter file does not show how long its lines may be
LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # as the parser counts them
UNLIMITED = re.compile(r"https?://|#|\"\"\"|'''")


def fitted(source: Source, node: ast.expr, text: str) -> tuple[Position, Position, str] | None:
    """Where a text goes and how, so that it binds as tightly as what it replaces."""
    start, end = source.start(node), source.end(node)
    new, old = expression_of(text), expression_of(source.segment(node))
    if new is None or old is None or ast.dump(old) != ast.dump(node):
        return None  # the parser does not know the true place, as within an f-string
    before = source.lines[start[0] - 1][: start[1]]
    after = source.lines[end[0] - 1][end[1] :]
    if _rank(new) < _rank(node) and not (before.endswith(("(", "[", ", ")) and after[:1] in (")", "]", ",")):  # fmt: skip
        return start, end, f"({text})"
    if _rank(new) == ATOM > _rank(node) and after.startswith(")") and _groups(before):
        return (start[0], start[1] - 1), (end[0], end[1] + 1), text
    return start, end, text


def _rank(node: ast.expr) -> int:
    kind = getattr(node, "op", node)
    return RANKS.get(type(kind), ATOM)


def _groups(before: str) -> bool:
    """Is the bracket at the end of a text there for the order alone, not that of a call?"""
    if not before.endswith("("):
        return False
    left = before[:-1]
    word = re.search(r"(\w+)\s+$", left)
    if word is not None:
        return keyword.iskeyword(word[1])
    return bool(re.search(r"[-+*/%@&|^~<>=!(\[{,:]\s*$", left))


def line_limit(lines: list[str]) -> int:
    """How long the lines of a file may be, judged by those it has; a few are let off everywhere."""
    lengths = sorted(len(line) for line in lines if not UNLIMITED.search(line))
    longest = lengths[math.ceil(0.995 * len(lengths)) - 1] if lengths else 0
    usual = LIMITS if len(lines) >= MANY_LINES else (DEFAULT_LIMIT, 120)
    return next((limit for limit in usual if longest <= limit), longest)


def broken(text: str, number: int, limit: int, depth: int = 3) -> str:
    """The text with a line that is too long put on several, at the brackets of its outermost call."""
    lines = LINES.findall(text)
    line = lines[number - 1].rstrip("\r\n")
    newline = lines[number - 1][len(line) :]
    if len(line) <= limit or depth == 0 or not line.isascii():
        return text
    call = _outermost_call(text, number)
    if call is None or "#" in line[call.end_col_offset or 0 :]:
        return text
    open_, close = line.index("(", call.func.end_col_offset) + 1, (call.end_col_offset or 0) - 1
    indent = line[: len(line) - len(line.lstrip())]
    deeper = indent + ("\t" if indent.endswith("\t") else "    ")
    middle = [deeper + line[open_:close].strip()]
    parts = [(a.col_offset, a.end_col_offset) for a in call.args]
    parts += [(k.col_offset, k.end_col_offset) for k in call.keywords]
    if len(middle[0]) > limit and len(parts) > 1:
        middle = [f"{deeper}{line[first:last]}," for first, last in parts]
    new = [line[:open_], *middle, indent + line[close:]]
    lines[number - 1] = (newline or "\n").join(new) + newline
    text = "".join(lines)
    for offset in range(len(middle), 0, -1):
        text = broken(text, number + offset, limit, depth - 1)
    return text


def _outermost_call(text: str, number: int) -> ast.Call | None:
    found = [
        node
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call)
        and node.lineno == node.end_lineno == number
        and (node.args or node.keywords)
        and not (len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp))
    ]
    return min(found, key=lambda n: (n.col_offset, -(n.end_col_offset or 0)), default=None)
