"""Whether the program reads a value to test whether it is finite."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType

from whynan.positions import site_at

ASKS = frozenset({"isfinite", "isnan", "isinf"})
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


@lru_cache(maxsize=1024)
def is_test(code: CodeType, lasti: int) -> bool:
    """`isfinite(loss.item())`, or `v = loss.item()` where `isfinite(v)` follows."""
    site = site_at(code, lasti)
    try:
        tree = ast.parse("".join(linecache.getlines(site.file)))
    except (SyntaxError, ValueError):
        return False
    above = _innermost(tree, site.line, site.expression)
    for node in above:
        if isinstance(node, ast.Call) and _is_question(node):
            return True
    statement = next((n for n in above if isinstance(n, ast.stmt | ast.NamedExpr)), None)
    name = _name_given(statement)
    function = next((n for n in above if isinstance(n, Function)), None)
    if name is None or function is None:
        return False
    return any(
        _is_question(call) and any(isinstance(a, ast.Name) and a.id == name for a in call.args)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
    )


def _innermost(tree: ast.Module, line: int, expression: str) -> list[ast.AST]:
    """The reading call at that place, then what is around it, outwards."""
    found: list[ast.AST] = []
    wanted = _normal(expression)

    def visit(node: ast.AST, above: list[ast.AST]) -> None:
        nonlocal found
        here = [node, *above]
        is_here = isinstance(node, ast.Call) and node.lineno == line
        if is_here and ast.unparse(node) == wanted:
            found = here
        for child in ast.iter_child_nodes(node):
            visit(child, here)

    visit(tree, [])
    return found


def _normal(expression: str) -> str:
    try:
        return ast.unparse(ast.parse(f"({expression}\n)", mode="eval"))
    except (SyntaxError, ValueError):
        return ""


def _is_question(call: ast.Call) -> bool:
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in ASKS


def _name_given(statement: ast.AST | None) -> str | None:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.NamedExpr):
        targets = [statement.target]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None
