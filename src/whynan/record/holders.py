"""What holds a value in a function: the names, attributes and entries it is given to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

FILLS = frozenset({"append", "appendleft", "add", "extend", "insert", "update", "setdefault"})
Pair = tuple[ast.expr, ast.expr]  # a target and what it is given


def place(node: ast.AST) -> str | None:
    """`loss`, `self.last`, `logs['loss']`: a name that statements share; None for other things."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = place(node.value)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript):
        base = place(node.value)
        return base and f"{base}[{ast.unparse(node.slice)}]"
    return None


def root(name: str) -> str:
    """`logs` of `logs['loss'].mean`."""
    return name.partition(".")[0].partition("[")[0]


class Holders:
    """The value of some expressions, and every place in one function that may hold it."""

    def __init__(self, nodes: Iterable[ast.AST] = (), places: Iterable[str] = ()) -> None:
        self.nodes = set(nodes)
        self.places = set(places)
        self.filled: set[str] = set()  # objects that were changed in order to hold it
        self.slots: dict[ast.AST, int] = {}  # of a call that returns several: which one it is
        self._partly: set[str] = set()  # containers one entry of which holds it

    def __bool__(self) -> bool:
        return bool(self.nodes or self.places)

    def hold(self, node: ast.AST) -> bool:
        """Whether the value may be in this expression."""
        if node in self.nodes:
            return True
        name = place(node)
        if name is not None and (name in self.places or name in self._partly):
            return True
        if _is_entry(node) and place(node.value) in self._partly:
            return False  # another one
        return any(map(self.hold, ast.iter_child_nodes(node)))

    def spread(self, nodes: Iterable[ast.AST]) -> None:
        """Follow it through the assignments among these nodes until nothing new holds it."""
        pairs = [pair for node in nodes for pair in self._pairs(node)]
        known = -1
        while known != len(self.places):
            known = len(self.places)
            for target, value in pairs:
                if self.hold(value):
                    self._add(target)

    def _add(self, target: ast.expr) -> None:
        name = place(target)
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._add(part)
        elif isinstance(target, ast.Starred):
            self._add(target.value)
        elif isinstance(target, ast.Subscript) and not _is_entry(target):
            self.filled |= {place(target.value) or ""}
            self._add(target.value)
        elif name is not None:
            self.places.add(name)
            if isinstance(target, ast.Subscript):
                self._partly.add(place(target.value) or "")

    def _pairs(self, node: ast.AST) -> Iterator[Pair]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self._assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if node.value is not None:
                yield from self._assigned(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from _looped(node.target, node.iter)
        elif isinstance(node, ast.Call):
            filled = node.func
            if isinstance(filled, ast.Attribute) and filled.attr in FILLS:
                some = ast.Subscript(filled.value, ast.Constant(...), ast.Store())
                yield from ((some, value) for value in arguments(node))

    def _assigned(self, target: ast.expr, value: ast.expr) -> Iterator[Pair]:
        targets = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        if any(isinstance(t, ast.Starred) for t in targets):
            targets = []
        slot = self.slots.get(value)
        if targets and isinstance(value, ast.Tuple | ast.List):
            for part, given in zip(targets, value.elts, strict=False):
                yield from self._assigned(part, given)
        elif slot is not None and slot < len(targets):
            yield targets[slot], value
        elif isinstance(value, ast.Dict) and place(target) is not None:
            for key, given in zip(value.keys, value.values, strict=True):
                entry = key and ast.Subscript(target, key, ast.Store())
                yield entry or target, given
        else:
            yield target, value


def arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _looped(target: ast.expr, value: ast.expr) -> Iterator[Pair]:
    """`for i, v in enumerate(values)` gives the values to `v` only."""
    called = (
        value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    )
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
        if called == "zip" and len(target.elts) == len(value.args):
            yield from zip(target.elts, value.args, strict=True)
            return
        if called == "enumerate" and len(target.elts) == 2:
            target = target.elts[1]
    yield target, value


def _is_entry(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )
