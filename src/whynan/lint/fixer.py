"""Applies replacements to text until nothing is left to apply; the result always parses."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable

from whynan.lint.finding import Finding, Replacement

MAX_PASSES = 12
LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def fix(
    text: str, check: Callable[[str], list[Finding]], *, may_import: bool = True
) -> tuple[str, int]:
    """Fixed text and how many replacements were made."""
    made = 0
    rejected: set[tuple[str, str]] = set()  # what replaced what: not tried again
    for _ in range(MAX_PASSES):
        wanted = [
            f.replacement
            for f in check(text)
            if f.replacement is not None
            and (may_import or not f.replacement.needs)
            and (f.source, f.replacement.text) not in rejected
        ]
        chosen = _apart(wanted)
        if not chosen:
            break
        changed = apply(text, chosen)
        if _parses(changed):
            text, made = changed, made + len(chosen)
            continue
        for one in chosen:  # one of them does not fit: find out which
            changed = apply(text, [one])
            if _parses(changed):
                text, made = changed, made + 1
                break
            rejected.add((text.splitlines()[one.start[0] - 1], one.text))
    return text, made


def _apart(replacements: Iterable[Replacement]) -> list[Replacement]:
    """Those that do not overlap, inner ones first: what surrounds them is looked at again."""
    chosen: list[Replacement] = []
    for one in sorted(replacements, key=lambda r: (r.end, (-r.start[0], -r.start[1]))):
        if not chosen or chosen[-1].end <= one.start:
            chosen.append(one)
    return chosen


def apply(text: str, replacements: Iterable[Replacement]) -> str:
    """The text with every replacement made."""
    lines = LINES.findall(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    needed: list[str] = []
    for one in sorted(replacements, key=lambda r: r.start, reverse=True):
        (first, left), (last, right) = one.start, one.end
        new = lines[first - 1][:left] + one.text.replace("\n", newline) + lines[last - 1][right:]
        lines[first - 1 : last] = [new]
        if one.needs and one.needs not in needed:
            needed.append(one.needs)
    text = "".join(lines)
    for statement in needed:
        text = _with_import(text, statement, newline)
    return text


def _with_import(text: str, statement: str, newline: str) -> str:
    """Put an import where imports go: after the docstring and `from __future__`."""
    tree = ast.parse(text)
    after = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        after = node.end_lineno or 0
    lines = LINES.findall(text)
    if after == 0:
        while after < len(lines) and lines[after].startswith("#"):
            after += 1
    lines.insert(after, statement + newline)
    return "".join(lines)


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
