"""What gives names their values: the bindings and reads of a file, scope by scope, in their order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from whynan.source.trees import Function

How = Literal[
    "is",  # x = value, (x := value), and one of several: x, y = value, other
    "part",  # x, y = value
    "item",  # for x in value
    "entered",  # with value as x
    "parameter",  # def f(x=value)
    "added",  # x += value
    "changed",  # value is x['key'] of an assignment, x.clamp_(0), x.half(); None for x[i]
    "imported", "defined", "caught", "deleted",
    "either",  # one of the choices, by the way that was taken
    "again",  # one of the choices, by the turn of the loop
    "any",  # one of the choices, by the time of asking
]  # fmt: skip


@dataclass(slots=True, eq=False, kw_only=True)
class Binding:
    """One place in the source where a name, an attribute or an entry gets its value."""

    place: str  # `x`, `self.x`, `config['x']`
    how: How
    node: ast.AST  # what stands there: the target, the parameter, the import, the definition
    scope: Scope
    value: ast.expr | None = None
    index: int | None = None  # of a part: which one
    imported: str = ""  # the full name of what is imported
    maybe: bool = False  # in an expression that need not be evaluated
    choices: tuple[Binding, ...] = ()

    @property
    def sources(self) -> list[Binding]:
        """Itself, or all that the value may come from."""
        found: dict[Binding, None] = {}
        waiting = [self]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found[one] = None
                waiting += reversed(one.choices)
        return [b for b in found if not b.choices]


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class or function: what it binds, and its reads and bindings statement by statement."""

    node: ast.Module | ast.ClassDef | Function
    parent: Scope | None = None
    bound: dict[str, list[Binding]] = field(default_factory=dict)
    steps: dict[ast.AST, list[ast.expr | Binding]] = field(default_factory=dict)
    inner: dict[ast.AST, Scope] = field(default_factory=dict)
    late: dict[ast.AST, list[ast.Name]] = field(
        default_factory=dict
    )  # read when lambdas are called
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # declared global or nonlocal
    shared: set[str] = field(default_factory=set)  # names that inner functions write, too
    has_parts: bool = False  # attributes or entries are given values

    def owns(self, name: str) -> bool:
        given = self.bound.get(name, ())
        return name not in self.elsewhere and any(b.how != "changed" for b in given)

    def home(self, name: str) -> Scope | None:
        """The scope around this one whose name it is; what a class binds, its methods do not see."""
        scope = self.elsewhere.get(name) or self.parent
        while scope is not None and (isinstance(scope.node, ast.ClassDef) or not scope.owns(name)):
            scope = scope.parent
        return scope

    def within(self, block: Sequence[ast.AST]) -> Iterator[Binding]:
        """What is bound between the first and the last of these nodes."""
        begin, end = _begin(block[0]), (block[-1].end_lineno, block[-1].end_col_offset)  # type: ignore[attr-defined] # statements have them
        for given in self.bound.values():
            yield from (b for b in given if begin <= _begin(b.node) < end)

    def below(self) -> Iterator[Scope]:
        yield self
        for scope in self.inner.values():
            yield from scope.below()


def _begin(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined] # no other node binds


def place(node: ast.AST) -> str | None:
    """`x`, `self.x`, `logs['loss']`: a name that statements share; None for other things."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = place(node.value)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = place(node.value)
        return base and f"{base}[{node.slice.value!r}]"
    return None


def defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function with what they are given when a call says nothing."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = [None] * (len(positional) - len(arguments.defaults))
    yield from zip(positional, [*without, *arguments.defaults], strict=True)
    yield from zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from ((a, None) for a in (arguments.vararg, arguments.kwarg) if a is not None)
