"""Where the data that a model is trained on comes in: tables, loops over batches, datasets."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import that
from whynan.repair.source import Expression, Source

ROWS = that("splits", "casts") | {"detach", "clone"}


def entries(source: Source) -> Iterator[tuple[str, cst.CSTNode, bool]]:
    """A table that is trained on, a statement, and whether it is complete only after that one."""
    yield from ((name, line, False) for name, line in _given_to_a_dataset(source))
    yield from ((name, line, True) for name, line in _kept_by_a_dataset(source))
    for loop in source.every(cst.For):
        outer = any(isinstance(a, cst.For) for a in source.ancestors(loop))
        if not outer and "backward()" in source.code(loop.body):
            yield from ((name, loop, False) for name in _trained_on(source, loop))


def _given_to_a_dataset(source: Source) -> Iterator[tuple[str, cst.CSTNode]]:
    """`TensorDataset(x, y)`."""
    for call in source.every(cst.Call):
        line = source.statement(call) or header(source, call)
        first = call.args[0].value if call.args else None
        named = source.code(call.func).split(".")[-1] == "TensorDataset"
        if named and line is not None and isinstance(first, cst.Name):
            yield first.value, line


def header(source: Source, node: cst.CSTNode) -> cst.For | None:
    """`for x, y in DataLoader(TensorDataset(...)):`, or the loop over epochs around it."""
    inside, found = node, None
    for above in source.ancestors(node):
        if isinstance(above, cst.FunctionDef):
            break
        if isinstance(above, cst.For):
            if found is None and above.iter is not inside:
                return None
            found = above
        inside = above
    return found


def _kept_by_a_dataset(source: Source) -> Iterator[tuple[str, cst.CSTNode]]:
    """`self.x = ...` of a class whose items begin with `self.x[i]`."""
    for method in source.every(cst.FunctionDef):
        if method.name.value != "__getitem__":
            continue
        owner = next((a for a in source.ancestors(method) if isinstance(a, cst.ClassDef)), None)
        for returned in source.every(cst.Return, method):
            item = returned.value
            if isinstance(item, cst.Tuple) and item.elements:
                item = item.elements[0].value
            if not isinstance(item, cst.Subscript) or owner is None:
                continue
            table = source.code(item.value)
            given = [
                a
                for a in source.every(cst.Assign, owner)
                if source.code(a.targets[0].target) == table
            ]
            line = source.statement(given[0].value) if len(given) == 1 else None
            if table.startswith("self.") and line is not None:
                yield table, line


def _trained_on(source: Source, loop: cst.For) -> list[str]:
    """`net(x)` or `net(xb)` in the loop: the table made before it that the model is given."""
    found = []
    for call in source.every(cst.Call, loop.body):
        if len(call.args) == 1 and isinstance(call.func, cst.Name) and not call.args[0].keyword:
            table = _table(source, call.args[0].value, loop)
            if table is not None:
                found.append(table)
    return list(dict.fromkeys(found))


def _table(source: Source, node: Expression, loop: cst.For, depth: int = 6) -> str | None:
    """The variable from before the loop that holds the rows: of `x[order[i:j]]`, `x`."""
    if depth == 0:
        return None
    if isinstance(node, cst.Subscript):
        return _table(source, node.value, loop, depth - 1)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method = node.func.attr.value in ROWS
        return _table(source, node.func.value, loop, depth - 1) if method else None
    if not isinstance(node, cst.Name):
        return None
    given = source.bindings(node.value, source.scope(loop))
    if given and all(source.start(g) < source.start(loop) for g in given):
        return node.value
    binding = source.binding(given[0]) if len(given) == 1 else None
    if binding is None or binding.value is None or binding.how not in ("is", "item"):
        return None
    made = source.expression(binding.value)  # also one of `for xb, yb in zip(a, b)`, `p, q = a, b`
    return _table(source, made, loop, depth - 1) if made is not None else None


def given_alike(source: Source, name: str, line: cst.CSTNode) -> list[str]:
    """Other tables that the same model is given, or another dataset, and that are there by then."""
    roots = [(source.code(c.func), _root(c), c) for c in source.every(cst.Call) if c.args]
    models = {
        callee
        for callee, root, call in roots
        for loop in source.ancestors(call)
        if isinstance(loop, cst.For) and "backward()" in source.code(loop.body) and root is not None
        if root.value == name or root.value in source.code(loop.target)
    }
    found = []
    for callee, root, call in roots:
        whole = callee == "TensorDataset" and root is call.args[0].value
        if root is None or root.value == name or not callee.isidentifier():
            continue
        given = source.bindings(root.value, source.scope(line))
        before = given and all(source.start(g) < source.start(line) for g in given)
        if before and (whole or callee in models):
            found.append(root.value)
    return list(dict.fromkeys(found))


def _root(call: cst.Call) -> cst.Name | None:
    """`x` of `net(x[rows])`."""
    node: cst.CSTNode = call.args[0].value
    while isinstance(node, cst.Subscript):
        node = node.value
    return node if isinstance(node, cst.Name) else None
