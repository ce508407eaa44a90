"""Walks a file's statements in order, so that every variable is known by its last certain value.

A definition counts only where it dominates the use: what one arm of an `if` or a loop's body
assigns is unknown after it, unless the other arm leaves the function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from whynan.lint.belonging import Evidence
from whynan.lint.calls import ClassInfo
from whynan.lint.helpers import Helpers, read_ahead
from whynan.lint.names import Names, Scope
from whynan.lint.reader import Reader, spelled_in
from whynan.lint.scopes import (
    as_load,
    assigned_once,
    assigns,
    evaluating,
    is_module,
    item_kind,
    merged,
    parameters,
    self_assignments,
    targets,
    turns_off_gradients,
    variable,
    written_into,
)
from whynan.lint.source import Source
from whynan.lint.spelling import KNOWN, operation
from whynan.lint.terms import Term, names_in, strip
from whynan.ops.table import that
from whynan.source.trees import Function, statements

IN_PLACE_MODULE = (that("casts") & that("tensor")) - {"cuda"} | {"to"}  # of a module, too


class Walker:
    """The state of the walk; rules see it as the place where they are asked."""

    def __init__(self, source: Source, check: Callable[[Term, Walker], None]) -> None:
        self.source = source
        self.no_grad = False
        self.half = source.uses_half(1, len(source.lines))
        self.function: Function | None = None
        self.silent = 0  # reading ahead: nothing is checked
        self._check = check
        self.names = Names(source.tree, source.text)
        self.evidence = Evidence(self.names)
        self.part: ast.stmt | None = None  # the outermost function or class
        self.reader = Reader(source, self.names.top, self._visit)
        self.reader.globals = self._global
        self.reader.helpers = Helpers(self)
        self._assigned_once: dict[str, ast.expr | None] = {}
        self._global_terms: dict[str, Term | None] = {}
        self._returns: list[Term | None] = []
        self.unwritten: set[int] = set()  # expressions that do not stand in the source as such
        self._kept: list[ast.expr] = []

    @property
    def tested(self) -> frozenset[str]:
        return self.reader.tested

    @property
    def env(self) -> dict[str, Term]:
        return self.reader.env

    @property
    def scope(self) -> Scope:
        return self.reader.scope

    @property
    def body(self) -> str:
        """The function around this place, as typed; '' outside of any."""
        if self.function is None:
            return ""
        return "\n".join(self.source.lines[self.function.lineno - 1 : self.function.end_lineno])

    def _visit(self, term: Term) -> None:
        if not self.silent:
            self._check(term, self)

    def walk(self) -> None:
        body, classes = self.source.tree.body, self.source.classes
        self._assigned_once = assigned_once(body)
        for node in classes:
            self.reader.classes[node.name] = ClassInfo(node.name, is_module(node))
        known = [c for c in classes if self.source.skim.holds(c.lineno, c.end_lineno)]
        for node in known:
            self._read_attributes(node)
        for node in known:  # before anything that may call an instance
            self._read_returned(node)
        self._definitions(body)
        self._block(body)

    def _definitions(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._class(node)
            elif isinstance(node, Function):
                self._function(node)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                self._definitions(s for s in ast.iter_child_nodes(node) if isinstance(s, ast.stmt))

    # Names of the module and attributes of classes

    def _global(self, name: str) -> Term | None:
        """A name assigned exactly once at module level: the same wherever it is read."""
        if name not in self._assigned_once:
            return None
        if name not in self._global_terms:
            self._global_terms[name] = None  # a definition in terms of itself is unknown
            value = self._assigned_once[name]
            if value is not None:
                self._global_terms[name] = self._read_aside(value, {}, self.names.top)
        return self._global_terms[name]

    def _read_aside(self, value: ast.expr, env: dict[str, Term], scope: Scope) -> Term:
        reader = self.reader
        kept = reader.env, reader.scope, reader.own_class
        self.silent += 1
        reader.env, reader.scope = env, scope
        term = reader.read(value)
        reader.env, reader.scope, reader.own_class = kept
        self.silent -= 1
        return term

    def _read_attributes(self, node: ast.ClassDef) -> None:
        info = self.reader.classes[node.name]
        seen: dict[str, int] = {}
        values: dict[str, tuple[ast.expr, Function]] = {}
        for method in node.body:
            if not isinstance(method, Function):
                continue
            for target, value in self_assignments(method):
                seen[target] = seen.get(target, 0) + 1
                if value is not None:
                    values[target] = (value, method)
        given: dict[Function, dict[str, Term]] = {}
        for name, (value, method) in values.items():
            if seen[name] == 1:
                scope = self.names.of(method)
                if method not in given:
                    given[method] = parameters(method, False, scope.meaning)
                info.attributes[name] = self._read_aside(value, dict(given[method]), scope)
                if method.name == "__init__":
                    info.settled.add(name)

    def _read_returned(self, node: ast.ClassDef) -> None:
        forward = next((m for m in node.body if isinstance(m, Function) and m.name == "forward"), None)  # fmt: skip
        info = self.reader.classes[node.name]
        if forward is None or not info.is_module:
            return
        returned = read_ahead(self, forward, info)
        if returned and all(r is not None for r in returned):
            kept = [strip(r) for r in returned if r is not None]
            if len({t.op for t in kept}) == 1 and kept[0].op != "unknown":
                info.returned = kept[0]

    # Functions

    def _class(self, node: ast.ClassDef) -> None:
        outer, outer_half, part = self.reader.own_class, self.half, self.part
        self.part = part or node
        self.reader.own_class = self.reader.classes[node.name]
        self.half = self.source.class_uses_half(node)
        for statement in node.body:
            if isinstance(statement, Function):
                self._function(statement)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement)
        self.reader.own_class, self.half, self.part = outer, outer_half, part

    def _function(self, node: Function) -> None:
        if not self.source.skim.holds(node.lineno, node.end_lineno):
            return
        half, part = self.half, self.part
        self.part = part or node
        inherited = half and self.reader.own_class is not None
        self.half = inherited or self.source.uses_half(node.lineno, node.end_lineno or node.lineno)
        self.run(node, self.reader.own_class)
        self.half, self.part = half, part

    def run(self, node: Function, info: ClassInfo | None) -> list[Term | None]:
        reader = self.reader
        kept = reader.env, reader.own_class, reader.tested, reader.scope, self.no_grad, self.function, self._returns  # fmt: skip
        is_forward = info is not None and info.is_module and node.name == "forward"
        reader.scope = self.names.of(node)
        outer = self._enclosed(reader.scope) if self.function else {}
        reader.env = {**outer, **parameters(node, is_forward, reader.scope.meaning)}
        reader.own_class = info
        reader.tested = frozenset()
        # The methods of an autograd.Function are not differentiated; they state the derivative.
        first = {arg.arg for arg in node.args.args[:2]}
        self.no_grad = (
            self.no_grad or "ctx" in first or any(map(turns_off_gradients, node.decorator_list))
        )
        self.function, self._returns = node, []
        self._block(node.body)
        returned = self._returns
        reader.env, reader.own_class, reader.tested, reader.scope, self.no_grad, self.function, self._returns = kept  # fmt: skip
        return returned

    def _enclosed(self, scope: Scope) -> dict[str, Term]:
        """What a nested function sees of its surroundings, whenever it will be called."""
        found = {}
        for name, term in self.env.items():
            owner = scope.owner(name)
            if owner is None or owner is scope or not name.isidentifier():
                continue
            settled = owner.own.get(name) == 1 and name not in owner.lost
            found[name] = term if settled else Term("unknown", term.node, kind=term.kind)
        return found

    # Statements

    def _block(self, body: Iterable[ast.stmt]) -> bool:
        """Walk a block; True when it certainly leaves (return, raise, continue, break)."""
        return any(self._statement(statement) for statement in body)

    def _statement(self, node: ast.stmt) -> bool:
        read = self.reader.read
        if isinstance(node, ast.Assign):
            value = read(node.value)
            for target in node.targets:
                self._bind(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, read(node.value))
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.Return):
            self._returns.append(read(node.value) if node.value is not None else None)
            return True
        elif isinstance(node, ast.Expr):
            self._expression(node.value)
        elif isinstance(node, ast.If):
            return self._if(node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            return self._with(node)
        elif isinstance(node, ast.Try):
            self._try(node)
        elif isinstance(node, ast.Assert):
            read(node.test)
            self.reader.tested |= self._looked_at(node.test)
        elif isinstance(node, ast.Raise | ast.Continue | ast.Break):
            return True
        elif isinstance(node, Function) and self.function is not None:
            self._function(node)
        elif isinstance(node, ast.Match):
            self._match(node)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self._forget(target)
        return False

    def _bind(self, target: ast.expr, value: Term) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
            for name in [n for n in self.env if n.startswith(f"{target.id}.")]:
                del self.env[name]
        elif isinstance(target, ast.Attribute):
            if (spelled := variable(target)) is not None:
                self.env[spelled] = value
        elif isinstance(target, ast.Subscript):
            self._forget(target.value, (self.reader.read(target.slice), value))
        elif isinstance(target, ast.Tuple | ast.List):
            known = value.args if value.op == "tuple" and len(value.args) == len(target.elts) else None  # fmt: skip
            for position, part in enumerate(target.elts):
                # A piece of what was unpacked has its kind, and for `chunk` its values.
                piece = known[position] if known else Term("piece", value.node, (value,), value=position, kind=value.kind)  # fmt: skip
                self._bind(part.value if isinstance(part, ast.Starred) else part, piece)

    def _forget(self, target: ast.expr, written: tuple[Term, ...] = ()) -> None:
        """Something was written into it: its values are no longer those of its definition."""
        name = written_into(target)
        if name is not None:
            old = self.env.get(name)
            self.env[name] = Term("patched", target, written, kind=old.kind if old else "?")

    def _augmented(self, node: ast.AugAssign) -> None:
        whole = ast.BinOp(left=as_load(node.target), op=node.op, right=node.value)
        load = ast.copy_location(whole, node)
        self.unwritten.add(id(load))
        term = self.reader.read(load)
        self._kept.append(load)  # an id is of use only while its object lives
        if isinstance(node.target, ast.Subscript):
            self._forget(node.target)
        else:
            self._bind(node.target, term)

    def _expression(self, value: ast.expr) -> None:
        term = self.reader.read(value)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            method, receiver = value.func.attr, value.func.value
            in_place = method.endswith("_") and not method.endswith("__")
            if (in_place and operation(method) in KNOWN) or method in IN_PLACE_MODULE:
                self._bind(receiver, term)
            elif in_place:
                self._forget(receiver)

    def _if(self, node: ast.If) -> bool:
        self.reader.read(node.test)
        reader = self.reader
        tested, before, no_grad = reader.tested, dict(reader.env), self.no_grad
        mentioned = self._looked_at(node.test)
        evaluated = evaluating(node)
        reader.tested = tested | mentioned
        self.no_grad = no_grad or evaluated is node.body
        left_body = self._block(node.body)
        after_body = reader.env
        reader.env = dict(before)
        self.no_grad = no_grad or evaluated is node.orelse
        left_other = self._block(node.orelse)
        self.no_grad = no_grad
        after_other = reader.env
        # After `if not n: return`, n has been looked at for the rest of the block.
        reader.tested = tested | (mentioned if left_body or left_other or assigns(node, mentioned) else frozenset())  # fmt: skip
        if left_body:
            reader.env = after_other
        elif left_other:
            reader.env = after_body
        else:
            reader.env = merged(after_body, after_other)
        return left_body and left_other and bool(node.orelse)

    def _looked_at(self, test: ast.expr) -> frozenset[str]:
        """What a test mentions, and what that was computed from."""
        names = spelled_in(test)
        known = [self.env[name] for name in names if name in self.env]
        return names.union(*map(names_in, known))

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        reader = self.reader
        tested = reader.tested
        if isinstance(node, ast.While):
            self._blur(node.body)
            reader.read(node.test)
            reader.tested = tested | spelled_in(node.test)
        else:
            iterated = reader.read(node.iter)
            self._blur(node.body)
            self._bind(node.target, Term("item", node.iter, (iterated,), kind=item_kind(iterated)))
        before = dict(reader.env)
        self._block(node.body)
        reader.env = merged(before, reader.env)
        reader.tested = tested
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        before = self.no_grad
        for item in node.items:
            value = self.reader.read(item.context_expr)
            self.no_grad = self.no_grad or turns_off_gradients(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value)
        left = self._block(node.body)
        self.no_grad = before
        return left

    def _try(self, node: ast.Try) -> None:
        reader = self.reader
        before = dict(reader.env)
        self._block(node.body)
        self._block(node.orelse)
        after = reader.env
        for handler in node.handlers:
            reader.env = merged(before, after)
            if not self._block(handler.body):
                after = merged(after, reader.env)
        reader.env = after
        self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.reader.read(node.subject)
        self._blur([s for case in node.cases for s in case.body])
        before = dict(self.env)
        for case in node.cases:
            self.reader.env = dict(before)
            self._block(case.body)
        self.reader.env = before
        self._blur([s for case in node.cases for s in case.body])

    def _blur(self, body: Iterable[ast.stmt]) -> None:
        """What a repeated block assigns is unknown when it begins again."""
        for statement in statements(body):
            for target in targets(statement):
                if (name := variable(target)) is not None:
                    old = self.env.get(name) if isinstance(target, ast.Name) else None
                    self.env[name] = Term("unknown", target, kind=old.kind if old else "?")
                elif isinstance(target, ast.Subscript):
                    self._forget(target)
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                function = statement.value.func
                if isinstance(function, ast.Attribute) and function.attr.endswith("_"):
                    self._forget(function.value)
