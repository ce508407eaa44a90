"""Whether a value is read in order to be tested, or to be told of after such a test."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType

from whynan.model import Site
from whynan.positions import site_at

SHORT = 4  # statements of a function that is a test and nothing else
ASKS = frozenset({"isfinite", "isnan", "isinf"})
# They leave NaN out: what they are given may hold some.
SPARES = frozenset(
    {"nan_to_num", "nanmean", "nansum", "nanmax", "nanmin", "nanmedian", "nanstd", "nanvar",
     "nanquantile", "nanpercentile"}
)  # fmt: skip
EXITS = frozenset({"exit", "_exit", "quit", "abort"})
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Place = ast.Name | ast.Attribute | ast.Subscript


@lru_cache(maxsize=1024)
def is_test(code: CodeType, lasti: int) -> bool:
    """`isfinite(loss.item())`; `v = loss.item()` where `isfinite(v)` or `v != v` follows; or
    `print(loss)` in a branch that such a test leads to and that does not end the loop."""
    site = site_at(code, lasti)
    try:
        tree = ast.parse("".join(linecache.getlines(site.file)))
    except (SyntaxError, ValueError):
        return False
    above = _innermost(tree, site)
    statement = next((n for n in above if isinstance(n, ast.stmt | ast.NamedExpr)), None)
    function = next((n for n in above if isinstance(n, Function)), tree)
    tests = _Tests(tree)
    if isinstance(above[0], ast.Call) and any(
        tests.ask(node, {ast.unparse(above[0])}) for node in above[1:] if node is not function
    ):
        return True
    name = _name_given(statement)
    if name is not None and any(tests.ask(node, {name}) for node in ast.walk(function)):
        return True
    read = {ast.unparse(n) for n in ast.walk(above[0]) if isinstance(n, Place)}
    return _tells_of_a_test(tests, site.line, read, function)


def _tells_of_a_test(tests: _Tests, line: int, read: set[str], function: ast.AST) -> bool:
    """Whether the line stands in a branch of a test of what it reads, and the loop goes on."""
    assigned = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    read = read | {
        ast.unparse(t) for n in assigned if _mentions(n.value, read) for t in n.targets
    }  # v = loss.item()
    answers = {
        ast.unparse(t)
        for n in assigned
        if any(tests.ask(part, read) for part in ast.walk(n.value))
        for t in n.targets
    }  # ok = isfinite(loss)
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.AsyncFor | ast.While)]
    for node in ast.walk(function):
        if not isinstance(node, ast.If):
            continue
        in_loop = any(n.lineno <= line <= (n.end_lineno or n.lineno) for n in loops)
        for branch in (node.body, node.orelse):
            here = branch and branch[0].lineno <= line <= (branch[-1].end_lineno or 0)
            if not here or _gives_up(branch, in_loop):
                continue
            asks = any(tests.ask(part, read) for part in ast.walk(node.test))
            if asks or _mentions(node.test, answers):
                return True
    return False


def _gives_up(branch: list[ast.stmt], in_loop: bool) -> bool:
    """Whether it ends the loop; a function that is one step only leaves that step out."""
    leaves = ast.Break | ast.Return if in_loop else ast.Break
    nodes = [n for statement in branch for n in ast.walk(statement)]
    return any(
        isinstance(n, leaves) or (isinstance(n, ast.Call) and _called(n) in EXITS) for n in nodes
    )


def _mentions(expression: ast.AST, wanted: set[str]) -> bool:
    return any(ast.unparse(n) in wanted for n in ast.walk(expression) if isinstance(n, ast.expr))


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


class _Tests:
    """The tests that a file knows: those of the libraries, and its own functions that use them."""

    def __init__(self, tree: ast.Module) -> None:
        self._names = set(ASKS | SPARES)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and len(function.body) <= SHORT:
                first = next((a.arg for a in function.args.args if a.arg != "self"), None)
                if first is not None and any(self.ask(n, {first}) for n in ast.walk(function)):
                    self._names.add(function.name)

    def ask(self, node: ast.AST, wanted: set[str]) -> bool:
        """Whether this is `isfinite(value)`, `value != value` or `not value < bound`."""
        if isinstance(node, ast.Call):
            asked = [*node.args, node.func]  # `value.isfinite()` asks as well
            return _called(node) in self._names and any(_mentions(a, wanted) for a in asked)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return isinstance(node.operand, ast.Compare) and _mentions(node.operand.left, wanted)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            same = ast.dump(node.left) == ast.dump(node.comparators[0])
            negates = isinstance(node.ops[0], ast.Eq | ast.NotEq)
            return same and negates and _mentions(node.left, wanted)
        return False


def _innermost(tree: ast.Module, site: Site) -> list[ast.AST]:
    """The reading expression at that place, else the statement; then what is around it, outwards."""
    found: list[ast.AST] = [tree]

    def visit(node: ast.AST, above: list[ast.AST]) -> None:
        nonlocal found
        here = [node, *above]
        if isinstance(node, ast.expr) and _stands_at(node, site):
            if not isinstance(found[0], ast.Call):
                found = here
        elif isinstance(node, ast.stmt) and not isinstance(found[0], ast.expr):
            is_around = node.lineno <= site.line <= (node.end_lineno or node.lineno)
            found = here if is_around else found
        for child in ast.iter_child_nodes(node):
            visit(child, here)

    visit(tree, [])
    return found


def _stands_at(node: ast.expr, site: Site) -> bool:
    if (node.lineno, node.end_lineno) != (site.line, site.end_line):
        return False
    begin = _characters(site, node.lineno, node.col_offset)
    end = _characters(site, site.end_line, node.end_col_offset or 0)
    return (begin, end) == (site.column, site.end_column)


def _characters(site: Site, line: int, offset: int) -> int:
    return len(linecache.getline(site.file, line).encode()[:offset].decode())


def _name_given(statement: ast.AST | None) -> str | None:
    """`v = loss.item()`, or the list in `losses.append(loss.item())`."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.NamedExpr):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr == "append":
            targets = [function.value]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None
