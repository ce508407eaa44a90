"""What a statement does that it would do otherwise the second time."""

from __future__ import annotations

import ast
from collections.abc import Container

from whynan.source.trees import head, last_word

# Each call gives something else, or takes something away: what it gave the last time is at hand.
DRAWS = frozenset({"next", "input", "get", "get_nowait", "recv", "read", "readline", "readlines", "pop", "popleft", "popitem"})  # fmt: skip
# Done for what it leaves in an object, which is still there from the last time.
LEAVES = frozenset({
    "append", "extend", "insert", "add", "update", "setdefault", "clear", "remove", "discard", "put", "push",
    "write", "writelines", "writerow", "writerows", "print", "log", "info", "debug", "warning", "error",
    "add_scalar", "add_scalars", "set_postfix", "set_description", "set_postfix_str", "appendleft",
})  # fmt: skip


def draws(statement: ast.stmt, written: Container[str]) -> bool:
    """Whether it takes something from what is older than the names `written`."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    for node in head(statement):
        if isinstance(node, ast.Await):
            return True
        if isinstance(node, ast.Call) and last_word(node.func) in DRAWS:
            if isinstance(node.func, ast.Name):
                return True
            receiver = root(node.func)
            # `settings.get("lr")` draws nothing: a constant key
            keyed = node.args and isinstance(node.args[0], ast.Constant)
            if receiver is not None and receiver not in written and not keyed:
                return True
    return False


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def root(node: ast.AST) -> str | None:
    """`self` of `self.losses[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
