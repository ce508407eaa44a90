"""Which names of a function or module a value can have reached, read from its statements."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

Body = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=64)
def scope_of(file: str, function: str, first_line: int) -> Body | None:
    """The function that begins at a line, or the whole module."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    if function == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if begin == first_line and node.name == function.rsplit(".", 1)[-1]:
                return node
    return None


def statements(scope: Body) -> list[ast.stmt]:
    """Every statement of a scope, without those of functions and classes defined in it."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.stmt):
            found.append(node)
        waiting += [
            n
            for n in ast.iter_child_nodes(node)
            if isinstance(n, (ast.stmt, ast.excepthandler, ast.match_case))
        ]
    return found


def statement_at(scope: Body, line: int, column: int | None = None) -> ast.stmt | None:
    """The innermost statement on a line; the column tells `a = f(x); print(a)` apart."""
    around = [s for s in statements(scope) if s.lineno <= line <= (s.end_lineno or s.lineno)]
    if column is not None:
        at = (line, column)
        exact = [s for s in around if (s.lineno, s.col_offset) <= at < _end(s)]
        around = exact or around
    return max(around, key=lambda s: (s.lineno, s.col_offset), default=None)


def _end(statement: ast.stmt) -> tuple[int, int]:
    return statement.end_lineno or statement.lineno, statement.end_col_offset or 0


def written_in_loops(scope: Body) -> set[str]:
    """Names that hold another value in each round."""
    loops = [s for s in statements(scope) if isinstance(s, (ast.For, ast.AsyncFor, ast.While))]
    inside = [s for loop in loops for s in ast.walk(loop) if isinstance(s, ast.stmt)]
    return {name for s in inside for name in names_written(s)}


def own_parts(statement: ast.stmt) -> list[ast.AST]:
    """Its expressions: of a loop or `with`, those of its head."""
    parts = ast.iter_child_nodes(statement)
    return [p for p in parts if not isinstance(p, (ast.stmt, ast.excepthandler, ast.match_case))]


def names_read(statement: ast.stmt) -> set[str]:
    """Names that it mentions for their value."""
    nodes = [n for part in own_parts(statement) for n in ast.walk(part)]
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    if isinstance(statement, ast.AugAssign):
        read |= _bases(statement.target)
    return read


def names_written(statement: ast.stmt) -> set[str]:
    """Names that hold its result: targets, and objects one of whose methods it calls."""
    found: set[str] = set()
    for part in own_parts(statement):
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(
                node.ctx, ast.Store
            ):
                found |= _bases(node)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        found |= _bases(call.func)
    return found


def _bases(node: ast.AST) -> set[str]:
    """`model` for `model.layers[0].bias`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def spread(scope: Body, names: set[str]) -> dict[str, str | None]:
    """Every name that values of `names` can have gone on to, and the name each came from."""
    reached: dict[str, str | None] = dict.fromkeys(names)
    every = [(names_read(s), names_written(s)) for s in statements(scope)]
    while True:
        new = {
            target: min(read & reached.keys())
            for read, written in every
            if read & reached.keys()
            for target in written - reached.keys()
        }
        if not new:
            return reached
        reached |= new


def given_to(scope: Body, name: str) -> set[str]:
    """Names that every call which makes `name` is given: those that it can have kept."""
    found: list[set[str]] = []
    for statement in statements(scope):
        if isinstance(statement, ast.Assign) and name in names_written(statement):
            call = statement.value
            args = (
                [*call.args, *(k.value for k in call.keywords)]
                if isinstance(call, ast.Call)
                else []
            )
            found.append({a.id for a in args if isinstance(a, ast.Name)})
    return set.intersection(*found) if found else set()


def literal_text(statement: ast.stmt) -> list[str]:
    """The strings that stand in it."""
    nodes = [n for part in own_parts(statement) for n in ast.walk(part)]
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
