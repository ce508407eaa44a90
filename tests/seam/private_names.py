"""Finds private names of torch in source text, however they are written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MENTION = re.compile(r"\btorch(\.\w+)*\._(?!_)\w+")
ASKING = {"getattr", "hasattr", "setattr", "delattr", "wrap", "import_module"}
# Private names of Python's, NumPy's and safetensors' own.
OTHERS = {
    "_getframe", "_current_frames", "_replace", "_fields", "_inst", "_rand", "_bit_generator", "_exit",
    "_flatten", "_flatten_as_ptr", "_bootstrap_inner", "_showwarnmsg", "_target", "_args", "_use_fd_functions",
}  # fmt: skip


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class Finder:
    """Reads one file; `own` are the private names that whynan's classes and modules define."""

    def __init__(self, text: str, own: set[str], rows: set[str]) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.own = own | OTHERS
        self.rows = rows
        self.torchs = set(self._bound_to_torch())
        self.uses_torch = "torch" in text

    def found(self) -> list[str]:
        uses = {f"{n}: {line.strip()}" for n, line in self._mentions()}
        for node in ast.walk(self.tree):
            if any(self._is_private_use(node)):
                line = self.text.splitlines()[node.lineno - 1]  # type: ignore[attr-defined]
                uses.add(f"{node.lineno}: {line.strip()}")  # type: ignore[attr-defined]
        return sorted(uses, key=lambda use: int(use.split(":")[0]))

    def members(self) -> set[str]:
        """Private attributes of objects that are not whynan's."""
        return {
            node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Attribute) and self._is_foreign(node)
        }

    def _mentions(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.text.splitlines(), 1):
            if MENTION.search(line):
                yield number, line

    def _bound_to_torch(self) -> Iterator[str]:
        """Names under which torch, or something of it, is known in the file."""
        known = {"torch"}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                known |= {a.asname for a in node.names if a.asname and _is_torch(a.name)}
            elif isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
                known |= {a.asname or a.name for a in node.names}
        for node in ast.walk(self.tree):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            value = getattr(node, "value", None)
            if isinstance(value, (ast.Name, ast.Attribute)) and _root(value) in known:
                known |= {t.id for t in targets if isinstance(t, ast.Name)}
        return iter(known)

    def _is_private_use(self, node: ast.AST) -> Iterator[bool]:
        if isinstance(node, ast.Import):
            yield any(_is_torch(a.name) and _has_private(a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and _is_torch(node.module or ""):
            yield _has_private(node.module or "") or any(is_private(a.name) for a in node.names)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            yield _root(node) in self.torchs
            yield self.uses_torch and self._is_foreign(node)
        elif isinstance(node, ast.Call) and _called(node.func) in ASKING:
            names = [a.value for a in node.args if isinstance(a, ast.Constant)]
            private = [n for n in names if isinstance(n, str) and is_private(n)]
            rooted = bool(node.args) and _root(node.args[0]) in self.torchs
            yield any(rooted or n in self.rows for n in private)

    def _is_foreign(self, node: ast.Attribute) -> bool:
        of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return is_private(node.attr) and not of_itself and node.attr not in self.own - self.rows


def own_names(files: list[Path]) -> set[str]:
    """The private names that these files define: functions, classes, `self._x`, slots."""
    found: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if _root(node) == "self" else set()
    return {name for name in found if is_private(name)}


def _is_torch(module: str) -> bool:
    return module.split(".")[0] == "torch"


def _has_private(module: str) -> bool:
    return any(is_private(part) for part in module.split("."))


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _called(func: ast.expr) -> str | None:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", None)
