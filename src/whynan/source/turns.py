"""Where an instruction stands in its function: the statements around it, and the loop whose turn it is in."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType

from whynan.source.bindings import Scope
from whynan.source.carriers import scope_of
from whynan.source.trees import Function, Loop, blocks, statement_at


def taken_over(code: CodeType, lasti: int) -> frozenset[str]:
    """Names that the innermost loop around an instruction both reads and gives values: what one of its
    turns may take over from the one before."""
    found = scope_and_way(code, lasti)
    loops = [node for node in found[1] if isinstance(node, Loop)] if found is not None else []
    if not loops:
        return frozenset()
    nodes = [n for s in loops[-1].body for n in ast.walk(s)]
    names = [n for n in nodes if isinstance(n, ast.Name)]
    added = {
        n.target.id
        for n in nodes
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    given = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    if isinstance(loops[-1], ast.For):  # another value in each turn
        given |= {n.id for n in ast.walk(loops[-1].target) if isinstance(n, ast.Name)}
    return frozenset(given & ({n.id for n in names if isinstance(n.ctx, ast.Load)} | added))


def scope_and_way(code: CodeType, lasti: int) -> tuple[Scope, list[ast.stmt]] | None:
    scope = scope_of(code)
    if scope is None or isinstance(scope.node, ast.ClassDef):
        return None
    line, _, column, _ = list(code.co_positions())[lasti // 2]
    target = statement_at(scope.node, line, column) if line is not None else None
    way = _way(scope.node.body, target) if target is not None else None
    return None if way is None else (scope, way)


def _way(block: Sequence[ast.stmt], target: ast.stmt) -> list[ast.stmt] | None:
    """The statements around one, from the outside, and itself."""
    for node in block:
        if node is target:
            return [node]
        if isinstance(node, Function | ast.ClassDef):
            continue
        for inner in blocks(node):
            found = _way(inner, target)
            if found is not None:
                return [node, *found]
    return None
