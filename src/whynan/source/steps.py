"""Reads a scope of a file into steps: what each statement reads and binds, in the order it happens."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from whynan.ops.table import that
from whynan.source.bindings import Binding, How, Scope, defaults, place
from whynan.source.trees import Function, blocks

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
# Called for their effect, these change a module; a tensor's methods that do have an underscore.
# What a list or another object is told to do with itself leaves the name what it was.
CASTS = (that("casts") & that("tensor")) - {"cuda"}


class Collector:
    """Reads one scope, and those in it."""

    def __init__(
        self, scope: Scope, given: dict[ast.AST, Binding], made: dict[ast.AST, Binding]
    ) -> None:
        self.scope = scope
        self.given = given  # what a read gets, where that is clear already: in a comprehension
        self.made = made
        self._now: ast.AST = scope.node
        self._steps: list[ast.expr | Binding] = []
        self._layers: list[dict[str, Binding]] = []  # names of comprehensions and lambdas
        self._late = 0
        self._maybe = 0

    def collect(self) -> None:
        node = self.scope.node
        self._steps = self.scope.steps[node] = []
        if isinstance(node, Function):
            for parameter, default in defaults(node.args):
                self._emit(parameter.arg, "parameter", parameter, default)
        for statement in node.body:
            self._statement(statement)
        for name, given in self.scope.bound.items():
            home = None if self.scope.owns(name) else self.scope.home(name)
            if home is not None and "." not in name and "[" not in name:
                home.bound[name] += given  # the object of an outer name is changed here
                home.shared.add(name)

    def _statement(self, node: ast.stmt) -> None:
        self._now = node
        self._steps = self.scope.steps[node] = []
        read = _READERS.get(type(node))
        if read is not None:
            read(self, node)
        else:
            self._read(*(c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)))
        if not isinstance(node, Function | ast.ClassDef):
            for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                self._head(part)
            for block in blocks(node):
                for statement in block:
                    self._statement(statement)

    def _assign(self, node: ast.Assign) -> None:
        self._read(node.value)
        for target in node.targets:
            self._target(target, "is", node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self._read(node.annotation)
        if node.value is not None:
            self._read(node.value)
            self._target(node.target, "is", node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Subscript):
            self._load(node.target)
        self._read(node.value)
        self._target(node.target, "added", node.value)

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        self._read(node.iter)
        self._steps = self.scope.steps[node.target] = []
        self._target(node.target, "item", node.iter)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._read(item.context_expr)
            if item.optional_vars is not None:
                self._target(item.optional_vars, "entered", item.context_expr)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        origin = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            full = f"{origin}.{alias.name}" if origin else alias.name
            local = alias.asname or (alias.name if origin else alias.name.partition(".")[0])
            if local != "*":
                self._emit(local, "imported", alias).imported = full if alias.asname or origin else local  # fmt: skip

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        pairs = list(defaults(node.args))
        said = [*(a.annotation for a, _ in pairs), node.returns, *(d for _, d in pairs)]
        self._read(*node.decorator_list, *(s for s in said if s is not None))
        self._emit(node.name, "defined", node)
        self.scope.inner[node] = Scope(node, self.scope)

    def _class(self, node: ast.ClassDef) -> None:
        self._read(*node.decorator_list, *node.bases, *(k.value for k in node.keywords))
        self._steps = []  # it has its name when its body is through
        self._emit(node.name, "defined", node)
        self.scope.inner[node] = Scope(node, self.scope)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._target(target, "deleted", None)

    def _shared(self, node: ast.Global | ast.Nonlocal) -> None:
        scope = self.scope
        for name in node.names:
            home: Scope | None = scope
            if isinstance(node, ast.Nonlocal):
                home = scope.home(name)
            else:
                while home is not None and home.parent is not None:
                    home = home.parent
            if home is not None and home is not scope:
                scope.elsewhere[name] = home

    def _expression(self, node: ast.Expr) -> None:
        self._read(node.value)
        func = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in CASTS:
            self._change(func.value, node.value)

    def _head(self, part: ast.ExceptHandler | ast.match_case) -> None:
        self._steps = self.scope.steps[part] = []
        if isinstance(part, ast.ExceptHandler):
            self._read(*([part.type] if part.type is not None else []))
            if part.name is not None:
                self._emit(part.name, "caught", part)
            return
        for node in ast.walk(part.pattern):
            name = getattr(node, "rest", None) or getattr(node, "name", None)
            if isinstance(node, ast.expr):
                self._read(node)
            elif name is not None:
                self._emit(name, "part", node)
        self._read(*([part.guard] if part.guard is not None else []))

    # ---- targets ------------------------------------------------------------------------------

    def _target(
        self, node: ast.expr, how: How, value: ast.expr | None, index: int | None = None
    ) -> None:
        if isinstance(node, ast.Tuple | ast.List):
            for position, part in enumerate(node.elts):
                self._target(part, *_part(node.elts, how, value, position))
        elif isinstance(node, ast.Starred):
            self._target(node.value, "part", value, index)
        elif isinstance(node, ast.Subscript):
            self._read(node.value, node.slice)
            entry = place(node)
            self._change(node.value, None if entry is None else node)
            if entry is not None:
                self._emit(entry, how, node, value, index)
        else:
            if isinstance(node, ast.Attribute):
                self._read(node.value)
            if (name := place(node)) is not None:
                self._emit(name, how, node, value, index)

    def _change(self, node: ast.expr, call: ast.expr | None) -> None:
        if isinstance(node, ast.Subscript):
            self._change(node.value, call)
        elif (name := place(node)) is not None:
            self._emit(name, "changed", node, call)

    def _emit(
        self, name: str, how: How, node: ast.AST, value: ast.expr | None = None,
        index: int | None = None,
    ) -> Binding:  # fmt: skip
        home = self.scope.elsewhere.get(name, self.scope)
        binding = Binding(
            place=name, how=how, node=node, scope=home, value=value, index=index,
            maybe=self._maybe > 0,
        )  # fmt: skip
        self.made[node] = binding
        home.bound.setdefault(name, []).append(binding)
        if home is not self.scope:
            home.shared.add(name)
        else:
            self._steps.append(binding)
            home.has_parts = home.has_parts or not name.isidentifier()
        return binding

    # ---- reads --------------------------------------------------------------------------------

    def _read(self, *nodes: ast.AST) -> None:
        """Note reads and bindings of expressions in the order in which they happen."""
        waiting: list[ast.AST] = [*nodes][::-1]
        while waiting:
            node = waiting.pop()
            kind = type(node)
            if kind is ast.Name:
                self._load(node)  # type: ignore[arg-type] # a name
            elif kind in _SPECIAL:
                _SPECIAL[kind](self, node)
            elif kind is ast.Call and (written := _written_by(node)) is not None:
                self._read(*ast.iter_child_nodes(node))
                self._change(written, node)  # type: ignore[arg-type] # a call
            else:
                if kind is ast.Attribute or kind is ast.Subscript:
                    self._steps.append(node)  # type: ignore[arg-type] # an expression
                for name in reversed(node._fields):
                    part = getattr(node, name)
                    if isinstance(part, list):
                        waiting += [p for p in reversed(part) if isinstance(p, ast.AST)]
                    elif isinstance(part, ast.expr):
                        waiting.append(part)

    def _walrus(self, node: ast.NamedExpr) -> None:
        self._read(node.value)
        self._emit(node.target.id, "is", node.target, node.value)

    def _load(self, node: ast.expr) -> None:
        name = node.id if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Attribute):
            self._read(node.value)
        for layer in reversed(self._layers):
            if name in layer:
                self.given[node] = layer[name]
                return
        if self._late and isinstance(node, ast.Name):
            self.scope.late.setdefault(self._now, []).append(node)
        else:
            self._steps.append(node)

    def _choice(self, node: ast.BoolOp | ast.IfExp) -> None:
        first, *others = (
            node.values if isinstance(node, ast.BoolOp) else (node.test, node.body, node.orelse)
        )
        self._read(first)
        self._maybe += 1
        self._read(*others)
        self._maybe -= 1

    def _lambda(self, node: ast.Lambda) -> None:
        pairs = list(defaults(node.args))
        self._read(*(default for _, default in pairs if default is not None))
        self._layers.append({a.arg: self._own(a.arg, "parameter", a, d) for a, d in pairs})
        self._late += 1
        self._read(node.body)
        self._late -= 1
        self._layers.pop()

    def _comprehension(self, node: Comprehension) -> None:
        layer: dict[str, Binding] = {}
        self._layers.append(layer)
        self._maybe += 1
        for part in node.generators:
            self._read(part.iter)
            for target in ast.walk(part.target):
                if isinstance(target, ast.Name):
                    how: How = "item" if target is part.target else "part"
                    layer[target.id] = self._own(target.id, how, target, part.iter)
            self._read(*part.ifs)
        self._read(*([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))
        self._maybe -= 1
        self._layers.pop()

    def _own(self, name: str, how: How, node: ast.AST, value: ast.expr | None) -> Binding:
        binding = Binding(place=name, how=how, node=node, scope=self.scope, value=value)
        self.made[node] = binding
        return binding


def _written_by(call: ast.AST) -> ast.expr | None:
    """`x` of `x.clamp_(...)`."""
    func = getattr(call, "func", None)
    if not isinstance(func, ast.Attribute) or not func.attr.endswith("_"):
        return None
    return None if func.attr.endswith("__") else func.value


def _part(
    targets: list[ast.expr], how: How, value: ast.expr | None, position: int
) -> tuple[How, ast.expr | None, int | None]:
    """What one of several targets gets: of `x, y = a, b` and `for x, y in zip(a, b)` its own value."""
    if how == "deleted":
        return how, None, None
    values: list[ast.expr] = []
    if how == "is" and isinstance(value, ast.Tuple | ast.List):
        values = value.elts
    elif how == "item" and isinstance(value, ast.Call) and place(value.func) == "zip":
        values = value.args
    stars = any(isinstance(node, ast.Starred) for node in (*targets, *values))
    if len(values) == len(targets) and not stars:
        return how, values[position], None
    return "part", value, None if how == "part" else position


_READERS: dict[type[ast.stmt], Callable[[Collector, Any], None]] = {
    ast.Assign: Collector._assign, ast.AnnAssign: Collector._annotated,
    ast.AugAssign: Collector._augmented, ast.For: Collector._loop, ast.AsyncFor: Collector._loop,
    ast.With: Collector._with, ast.AsyncWith: Collector._with, ast.Import: Collector._import,
    ast.ImportFrom: Collector._import, ast.FunctionDef: Collector._function,
    ast.AsyncFunctionDef: Collector._function, ast.ClassDef: Collector._class,
    ast.Delete: Collector._delete, ast.Global: Collector._shared, ast.Nonlocal: Collector._shared,
    ast.Expr: Collector._expression,
}  # fmt: skip
_SPECIAL: dict[type[ast.AST], Callable[[Collector, Any], None]] = {
    ast.Constant: lambda collector, node: None,
    ast.NamedExpr: Collector._walrus, ast.BoolOp: Collector._choice, ast.IfExp: Collector._choice,
    ast.Lambda: Collector._lambda, ast.ListComp: Collector._comprehension,
    ast.SetComp: Collector._comprehension, ast.DictComp: Collector._comprehension,
    ast.GeneratorExp: Collector._comprehension,
}  # fmt: skip
