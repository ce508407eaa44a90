"""What a name was last given, and who reads that: the bindings of a file, followed on all its ways.

A statement is met in the order in which it runs. What one arm of a branch binds is one of two
choices after it; what a loop binds may come from an earlier turn when it begins again; what an
inner function reads of its surroundings was bound at any time. A binding without choices is
certain, unless `deleted`.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache

from whynan.source.bindings import Binding, How, Scope, place
from whynan.source.steps import Collector
from whynan.source.trees import parsed

Env = dict[str, Binding]
LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break


@lru_cache(maxsize=16)
def names_of(tree: ast.Module) -> Names:
    """The names of a file; none if it is nested too deeply."""
    try:
        return Names(tree)
    except RecursionError:
        return Names(parsed(""))


class Names:
    """One file, followed."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree)
        self.scopes: dict[ast.AST, Scope] = {}
        self.bindings: dict[ast.AST, Binding] = {}  # by what stands there
        self._given: dict[ast.AST, Binding] = {}
        self._reads: dict[Binding, list[ast.expr]] | None = None
        self._moments: dict[ast.AST, tuple[_Walk, int]] = {}
        waiting = [self.module]
        for scope in waiting:  # an outer one before those in it
            self.scopes[scope.node] = scope
            Collector(scope, self._given, self.bindings).collect()
            waiting += scope.inner.values()
        for scope in waiting:
            if not isinstance(scope.node, ast.ClassDef):  # it runs as part of what is around it
                _Walk(scope, self._given, self._moments, None).run()

    def given(self, read: ast.expr) -> Binding | None:
        """What a name, an attribute or an entry holds where it is read; None if nobody here says.

        Of an `x += 1`, the target: what is added to."""
        return self._given.get(read)

    def reads(self, binding: Binding) -> list[ast.expr]:
        """Where the value of a binding is read, for certain or by choice."""
        if self._reads is None:
            self._reads = {}
            for read, given in self._given.items():
                for source in given.sources:
                    self._reads.setdefault(source, []).append(read)  # type: ignore[arg-type] # reads are expressions
        return self._reads.get(binding, [])

    def before(self, statement: ast.AST, name: str) -> Binding | None:
        """What a name holds when a statement begins."""
        if statement not in self._moments:
            return None  # it is never reached
        walk, moment = self._moments[statement]
        return walk.at(moment, name)

    def attributes(self, owner: ast.ClassDef) -> dict[str, list[Binding]]:
        """What the methods of a class give to `self.x`, by x."""
        found: dict[str, list[Binding]] = {}
        for method in self.scopes[owner].inner.values():
            arguments = getattr(method.node, "args", None)
            own = f"{arguments.args[0].arg}." if arguments is not None and arguments.args else "."
            for name, given in method.bound.items():
                if name.startswith(own) and name[len(own) :].isidentifier():
                    found.setdefault(name[len(own) :], []).extend(given)
        return found


class _Walk:
    """One scope's statements on all their ways."""

    def __init__(
        self, scope: Scope, given: dict[ast.AST, Binding],
        moments: dict[ast.AST, tuple[_Walk, int]], around: _Walk | None,
    ) -> None:  # fmt: skip
        self.scope = scope
        self.env: Env = {}
        self.history: dict[str, list[tuple[int, Binding | None]]] = {}
        self._given = given
        self._moments = moments
        self._around = around  # of a class: what runs around it
        self._clock = 0
        self._any: Env = {}

    def run(self) -> None:
        self._replay(self.scope.node)
        self._block(self.scope.node.body)
        for read in (read for reads in self.scope.late.values() for read in reads):
            name = read.id
            found = self._whenever(self.scope, name) if self.scope.owns(name) else self._outer(name)
            if found is not None:
                self._given[read] = found

    def at(self, moment: int, name: str) -> Binding | None:
        past = self.history.get(name, [])
        number = bisect_left(past, moment, key=lambda entry: entry[0])
        found = past[number - 1][1] if number else None
        return self._elsewhere(name) if found is None or name in self.scope.shared else found

    # ---- values ---------------------------------------------------------------------------

    def _replay(self, node: ast.AST) -> None:
        """The reads and bindings of a statement's head."""
        for step in self.scope.steps.get(node, ()):
            if isinstance(step, Binding):
                old = self.env.get(step.place)
                self._set(step.place, _either(old, step) if step.maybe else step)
            elif isinstance(step, ast.Name):
                found = self.env.get(step.id)
                if found is None or step.id in self.scope.shared:
                    found = self._elsewhere(step.id)
                if found is not None:
                    self._given[step] = found
            elif self.scope.has_parts and (found := self.env.get(place(step) or "")) is not None:
                self._given[step] = found

    def _set(self, name: str, binding: Binding) -> None:
        if self.scope.has_parts and not _is_entry(binding):
            for part in [p for p in self.env if p.startswith((f"{name}.", f"{name}["))]:
                self._note(part, None)
                del self.env[part]
        self._note(name, binding)
        self.env[name] = binding

    def _note(self, name: str, binding: Binding | None) -> None:
        self.history.setdefault(name, []).append((self._clock, binding))

    def _become(self, env: Env) -> None:
        if env is not self.env:
            for name in self.env.keys() | env.keys():
                if self.env.get(name) is not env.get(name):
                    self._note(name, env.get(name))
            self.env = env

    def _elsewhere(self, name: str) -> Binding | None:
        """What is not, or not only, bound by the statements before."""
        if name in self.scope.shared:
            return self._whenever(self.scope, name)
        if self._around is not None:
            return self._around.env.get(name) or self._around._elsewhere(name)
        return None if self.scope.owns(name) else self._outer(name)

    def _outer(self, name: str) -> Binding | None:
        home = self.scope.home(name)
        return self._whenever(home, name) if home is not None else None

    def _whenever(self, home: Scope, name: str) -> Binding | None:
        """All that a scope ever gives a name."""
        if name not in self._any and name in home.bound:
            given = home.bound[name]
            self._any[name] = given[0] if len(given) == 1 else _one_of("any", given)
        return self._any.get(name)

    # ---- statements -----------------------------------------------------------------------

    def _block(self, body: Iterable[ast.stmt]) -> bool:
        """True when it certainly leaves: return, raise, continue, break."""
        return any(self._statement(statement) for statement in body)

    def _begin(self, node: ast.AST) -> None:
        self._clock += 1
        self._moments[node] = (self, self._clock)

    def _statement(self, node: ast.stmt) -> bool:
        self._begin(node)
        if isinstance(node, ast.While):
            self._again([node])
            self._begin(node)
        self._replay(node)
        if isinstance(node, ast.If):
            before = dict(self.env)
            left = self._block(node.body)
            after = None if left else self.env
            self._become(before)
            other = None if self._block(node.orelse) else self.env
            return self._joined(after, other)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            return self._block(node.body)
        elif isinstance(node, ast.Try | ast.TryStar):
            return self._try(node)
        elif isinstance(node, ast.Match):
            return self._match(node)
        elif isinstance(node, ast.ClassDef):
            scope = self.scope.inner[node]
            _Walk(scope, self._given, self._moments, self).run()
            for binding in self.scope.bound.get(node.name, ()):
                if binding.node is node:
                    self._set(node.name, binding)
        return isinstance(node, LEAVES)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if not isinstance(node, ast.While):
            self._again([node])
        top = dict(self.env)
        if not isinstance(node, ast.While):
            self._replay(node.target)
        left = self._block(node.body)
        self._joined(None if left else self.env, top)
        self._block(node.orelse)

    def _again(self, block: Sequence[ast.AST], how: How = "again") -> None:
        """What a block binds may or may not have been bound when it begins, or breaks off."""
        inside: dict[str, list[Binding]] = {}
        for binding in self.scope.within(block):
            inside.setdefault(binding.place, []).append(binding)
        for name, given in inside.items():
            old = self.env.get(name)
            self._set(name, _one_of(how, [old, *given] if old is not None else given))

    def _try(self, node: ast.Try | ast.TryStar) -> bool:
        before = dict(self.env)
        left = self._block(node.body) or self._block(node.orelse)
        after = None if left else self.env
        for handler in node.handlers:
            self._become(dict(before))
            self._again(node.body, "either")
            self._replay(handler)
            if not self._block(handler.body):
                after = self.env if after is None else _merged(after, self.env)
        if not node.finalbody:
            return self._joined(after, None)
        self._become(dict(before))
        self._again([node.body[0], [*node.body, *node.orelse, *node.handlers][-1]], "either")
        left = self._block(node.finalbody)
        bound = {b.place for b in self.scope.within(node.finalbody)}
        if after is not None:
            self._become({n: b for n, b in after.items() if n not in bound} | {n: self.env[n] for n in bound if n in self.env})  # fmt: skip
        return left or after is None

    def _match(self, node: ast.Match) -> bool:
        before, after = dict(self.env), None
        for case in node.cases:
            self._become(dict(before))
            self._replay(case)
            if not self._block(case.body):
                after = self.env if after is None else _merged(after, self.env)
        last = node.cases[-1]
        whatever = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        return self._joined(after, None if whatever and last.guard is None else before)

    def _joined(self, one: Env | None, other: Env | None) -> bool:
        """Go on after two ways, of which None has left; True if there is none."""
        both = [env for env in (one, other) if env is not None]
        if both:
            self._become(both[0] if len(both) == 1 else _merged(*both))
        return one is None and other is None


def _merged(one: Env, other: Env) -> Env:
    return {name: _either(one.get(name), other.get(name)) for name in one.keys() | other.keys()}


def _either(one: Binding | None, other: Binding | None) -> Binding:
    """What holds on both ways, or one of two; also of one, where the other has none."""
    if one is not None and one is other:
        return one
    return _one_of("either", [b for b in (one, other) if b is not None])


def _one_of(how: How, choices: Sequence[Binding]) -> Binding:
    first = choices[0]
    return Binding(
        place=first.place, how=how, node=first.node, scope=first.scope, choices=tuple(choices)
    )


def _is_entry(binding: Binding) -> bool:
    """`x['key'] = ...` leaves the other entries of x as they are."""
    return binding.how == "changed" and isinstance(binding.value, ast.Subscript)
