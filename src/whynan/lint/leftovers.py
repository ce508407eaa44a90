"""Variables that nothing reads any more once a fix is made: their lines go with it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from whynan.lint.layout import LINES
from whynan.lint.spelling import KNOWN, operation
from whynan.lint.terms import SHAPE_OPS
from whynan.ops.table import that
from whynan.source.trees import Function, last_word, parsed

# Only what does nothing but compute may go unrun: no drawing of numbers, no module of the user's.
DRAWS = that("random")
EFFECTS = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.Starred)
WATCHING = frozenset({"locals", "vars", "eval", "exec", "globals"})
Key = tuple[int, str]  # which function of the file, in order, and the variable


def without_leftovers(before: str, after: str) -> str:
    """The changed text without the assignments that only the replaced text read."""
    unread_before = set(_unread(parsed(before)))
    while True:
        found = {k: s for k, s in _unread(parsed(after)).items() if k not in unread_before}
        lines = LINES.findall(after)
        gone = next((s for s in found.values() if _may_go(s, lines)), None)
        if gone is None:
            return after
        del lines[gone.lineno - 1 : gone.end_lineno]
        after = "".join(lines)


def _unread(tree: ast.Module) -> dict[Key, ast.Assign]:
    """Variables of functions that are assigned once and never read."""
    found: dict[Key, ast.Assign] = {}
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    for index, function in enumerate(functions):
        stored: Counter[str] = Counter()
        read: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    read.add(node.id)
                else:
                    stored[node.id] += 1
            elif isinstance(node, ast.arg):
                stored[node.arg] += 1
            elif isinstance(node, ast.Global | ast.Nonlocal):
                read.update(node.names)
        if read & WATCHING:
            continue
        for suite in _suites(function):
            for statement in suite if len(suite) > 1 else ():
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                if isinstance(target, ast.Name) and stored[target.id] == 1 and target.id not in read:  # fmt: skip
                    assert isinstance(statement, ast.Assign)
                    found[index, target.id] = statement
    return found


def _suites(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, None)
            if isinstance(suite, list):
                yield suite


def _may_go(statement: ast.Assign, lines: list[str]) -> bool:
    """Does it fill its lines, with no comment on them, and only compute?"""
    typed = lines[statement.lineno - 1 : statement.end_lineno]
    whole = not typed[0][: statement.col_offset].strip() and not typed[-1].encode()[statement.end_col_offset :].strip()  # fmt: skip
    return whole and not any("#" in line for line in typed) and _only_computes(statement.value)


def _only_computes(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, EFFECTS):
            return False
        if isinstance(node, ast.Call):
            name = last_word(node.func) or ""
            op = operation(name)
            if name.endswith("_") or op in DRAWS or (op not in KNOWN and op not in SHAPE_OPS):
                return False
    return True
