"""What a change leaves without a reader: an import, a `self.softmax = nn.Softmax(dim=1)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

# Modules without weights: one that is not used is not missed, in a saved state neither.
BARE = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "LogSigmoid", "Softplus", "Identity"})


def tidied(before: str, after: str, others: Iterable[str]) -> str:
    """The changed text of a file without what was read before and is not any more."""
    try:
        was, now = ast.parse(before), ast.parse(after)
    except SyntaxError:
        return after
    lines = [*_imports(was, now), *_attributes(was, now, others)]
    kept = after.splitlines(keepends=True)
    for line, narrower in _narrowed(was, now, kept).items():
        kept[line - 1] = narrower
    for line in sorted(lines, reverse=True):
        del kept[line - 1]
    text = "".join(kept)
    try:
        ast.parse(text)
    except SyntaxError:  # it was all that a block had
        return after
    return text


def _imports(was: ast.Module, now: ast.Module) -> list[int]:
    """Of imports with one name, alone on a line at the top."""
    read, found = _names(was) - _names(now), []
    exported = {n.value for n in ast.walk(now) if isinstance(n, ast.Constant)}
    for node in now.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or len(node.names) != 1:
            continue
        alias = node.names[0]
        name = alias.asname or alias.name.split(".")[0]
        if name in read and name not in exported and node.lineno == node.end_lineno:
            found.append(node.lineno)
    return found


def _narrowed(was: ast.Module, now: ast.Module, text: list[str]) -> dict[int, str]:
    """Imports of several names, some of which nothing reads any more."""
    read, found = _names(was) - _names(now), dict[int, str]()
    exported = {n.value for n in ast.walk(now) if isinstance(n, ast.Constant)}
    for node in now.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or len(node.names) < 2:
            continue
        kept = [a for a in node.names if (name := a.asname or a.name.split(".")[0]) not in read or name in exported]  # fmt: skip
        plain = node.lineno == node.end_lineno and not set("#();") & set(text[node.lineno - 1])
        if plain and kept and len(kept) < len(node.names):
            node.names = kept
            found[node.lineno] = ast.unparse(node) + "\n"
    return found


def _names(tree: ast.Module) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _attributes(was: ast.Module, now: ast.Module, others: Iterable[str]) -> list[int]:
    """`self.name = nn.Softmax(...)` that no file reads any more, under whatever owner."""
    gone = _read(was) - _read(now)
    found: list[int] = []
    texts: list[str] | None = None
    for node in ast.walk(now):
        if not isinstance(node, ast.Assign) or node.lineno != node.end_lineno:
            continue
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
            continue
        made = ast.unparse(value.func).split(".")[-1] if isinstance(value, ast.Call) else ""
        if made not in BARE or target.attr not in gone:
            continue
        texts = list(others) if texts is None else texts  # only now are they read
        word = re.compile(
            rf"(?<!torch)(?<!F)(?<!functional)\.{target.attr}\b|[\"']{target.attr}[\"']"
        )
        if not any(map(word.search, texts)):
            found.append(node.lineno)
    return found


def _read(tree: ast.Module) -> set[str]:
    """Attributes that are read, but for functions of a module: `torch.softmax`."""
    return {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Load)
        and ast.unparse(n.value) not in ("torch", "F", "nn", "nn.functional", "torch.nn.functional")
    }
