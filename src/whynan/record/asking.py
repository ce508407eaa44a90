"""What counts as a question whether a value is finite."""

from __future__ import annotations

import ast
import math

from whynan.record.holders import Holders, arguments, place, root
from whynan.record.scopes import Scope

DEPTH = 3  # functions that hand a value on until one asks
ASKS = frozenset(
    {"isfinite", "isnan", "isinf", "isneginf", "isposinf", "isna", "isnull", "notna", "notnull"}
)
# They leave NaN out: what they are given may hold some.
SPARES = frozenset(
    {"nan_to_num", "nanmean", "nansum", "nanmax", "nanmin", "nanmedian", "nanstd", "nanvar",
     "nanquantile", "nanpercentile", "dropna", "fillna"}
)  # fmt: skip
INFINITIES = frozenset({"inf", "Inf", "infty", "Infinity", "PINF", "NINF"})
NANS = frozenset({"nan", "NaN", "NAN"})
ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def is_asked(scope: Scope, holders: Holders, depth: int = 0) -> bool:
    """Whether the function asks for any place that holds the value."""
    return any(asks(scope, node, holders, depth) for node in scope.nodes)


def asks(scope: Scope, node: ast.AST, holders: Holders, depth: int = 0) -> bool:
    """`isfinite(v)`, `v != v`, `not v < bound`, `v == inf`, `'nan' in str(v)`; or a function of
    the program's that is given the value and asks so."""
    if isinstance(node, ast.Call):
        name = scope.called(node)
        if name in ASKS or name in SPARES:
            return any(map(holders.hold, [*arguments(node), node.func]))  # also `v.isfinite()`
        if name.lower().startswith("assert") and _meets(
            scope, arguments(node), holders, NANS | INFINITIES
        ):
            return True
        return depth < DEPTH and _is_asked_inside(scope, node, holders, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = node.operand
        if not isinstance(inner, ast.Compare) or not isinstance(inner.ops[0], ORDERS):
            return False
        return holders.hold(inner.left)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [node.left, *node.comparators]
        if isinstance(node.ops[0], ast.Eq | ast.NotEq) and len(set(map(ast.dump, sides))) == 1:
            return any(map(holders.hold, sides))
        return _meets(scope, sides, holders, INFINITIES)
    return False


def _is_asked_inside(scope: Scope, call: ast.Call, holders: Holders, depth: int) -> bool:
    inner = scope.callee(call)
    if inner is None:
        return False
    inside = Holders()
    for name, value in inner.bound(call):
        inside.places |= {name} if holders.hold(value) else set()
        inside.places |= moved(holders.places, place(value), name)
    if inner.tree is scope.tree:
        shared = inner.mentioned - inner.locals - scope.locals
        inside.places |= {p for p in holders.places if root(p) in shared}
    inside.spread(inner.nodes)
    return bool(inside) and is_asked(inner, inside, depth)


def moved(places: set[str], old: str | None, new: str | None) -> set[str]:
    """`t.last` for `self.last`, where the one is called by the other's name."""
    if not old or not new:
        return set()
    return {new + p[len(old) :] for p in places if p.startswith((f"{old}.", f"{old}["))}


def _meets(scope: Scope, sides: list[ast.expr], holders: Holders, words: frozenset[str]) -> bool:
    """Whether the value is compared with something non-finite."""
    return any(
        holders.hold(a) and _is_nonfinite(scope, b, words)
        for a in sides
        for b in sides
        if a is not b
    )


def _is_nonfinite(scope: Scope, node: ast.AST, words: frozenset[str]) -> bool:
    """`float('inf')`, `-math.inf`, `INF`; as a text also `'nan'`."""
    if isinstance(node, ast.Call) and scope.called(node) == "float":
        text = node.args[0] if node.args else None
        return isinstance(text, ast.Constant) and _word(text.value) in words
    if isinstance(node, ast.Constant):
        return _word(node.value) in NANS | INFINITIES or node.value == math.inf
    if isinstance(node, ast.Attribute):
        return node.attr in words
    if isinstance(node, ast.Name):
        meant = scope.names.get(node.id) if node.id.isupper() else None
        return node.id in words or (isinstance(meant, float) and abs(meant) == math.inf)
    return any(_is_nonfinite(scope, n, words) for n in ast.iter_child_nodes(node))


def _word(text: object) -> str:
    word = text.strip().lower().lstrip("+-") if isinstance(text, str) else ""
    return "inf" if word == "infinity" else word
