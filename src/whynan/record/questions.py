"""Whether the program reads a value to test whether it is finite."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType

from whynan.model import Site
from whynan.positions import site_at

SHORT = 4  # statements of a function that is a test and nothing else
ASKS = frozenset({"isfinite", "isnan", "isinf"})
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


@lru_cache(maxsize=1024)
def is_test(code: CodeType, lasti: int) -> bool:
    """`isfinite(loss.item())`, or `v = loss.item()` where `isfinite(v)` or `v != v` follows."""
    site = site_at(code, lasti)
    try:
        tree = ast.parse("".join(linecache.getlines(site.file)))
    except (SyntaxError, ValueError):
        return False
    tests = _Tests(tree)
    above = _innermost(tree, site)
    if any(tests.holds(node, above[0]) for node in above[1:]):
        return True
    statement = next((n for n in above if isinstance(n, ast.stmt | ast.NamedExpr)), None)
    name = _name_given(statement)
    function = next((n for n in above if isinstance(n, Function)), None)
    return name is not None and function is not None and tests.ask_for(name, function)


class _Tests:
    """The tests that a file knows: those of the libraries, and its own functions that use them."""

    def __init__(self, tree: ast.Module) -> None:
        self._names = set(ASKS)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and len(function.body) <= SHORT:
                first = next((a.arg for a in function.args.args if a.arg != "self"), None)
                if first is not None and self.ask_for(first, function):
                    self._names.add(function.name)

    def ask_for(self, name: str, function: ast.AST) -> bool:
        """Whether the function tests a variable of that name."""
        return any(
            self.holds(node, used)
            for node in ast.walk(function)
            for used in ast.walk(node)
            if isinstance(used, ast.Name) and used.id == name
        )

    def holds(self, node: ast.AST, value: ast.AST) -> bool:
        """Whether this is `isfinite(value)`, `value != value` or `not value < bound`."""
        if isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            return name in self._names and value in node.args
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return isinstance(node.operand, ast.Compare) and node.operand.left is value
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            same = ast.dump(node.left) == ast.dump(node.comparators[0])
            is_part = value in (node.left, node.comparators[0])
            return same and is_part and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        return False


def _innermost(tree: ast.Module, site: Site) -> list[ast.AST]:
    """The reading call at that place, then what is around it, outwards."""
    found: list[ast.AST] = [tree]

    def visit(node: ast.AST, above: list[ast.AST]) -> None:
        nonlocal found
        here = [node, *above]
        if isinstance(node, ast.Call) and _stands_at(node, site):
            found = here
        for child in ast.iter_child_nodes(node):
            visit(child, here)

    visit(tree, [])
    return found


def _stands_at(call: ast.Call, site: Site) -> bool:
    if (call.lineno, call.end_lineno) != (site.line, site.end_line):
        return False
    begin = _characters(site, call.lineno, call.col_offset)
    end = _characters(site, site.end_line, call.end_col_offset or 0)
    return (begin, end) == (site.column, site.end_column)


def _characters(site: Site, line: int, offset: int) -> int:
    return len(linecache.getline(site.file, line).encode()[:offset].decode())


def _name_given(statement: ast.AST | None) -> str | None:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.NamedExpr):
        targets = [statement.target]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None
