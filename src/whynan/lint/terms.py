"""An expression as mathematics: spelling, imports and variables taken out of the way.

`torch.log(p)`, `p.log()` and `np.log(p)` are all the term `log` with one argument, and a variable
knows the term it was assigned, so that a rule states its pattern once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from whynan.ops.table import row, that

Kind = Literal["tensor", "array", "other", "scalar", "?"]  # other: of another array library
Value = float | int | str | bool | None

# Change the shape or place of the values, not the values: a rule looks through them.
SHAPE_OPS = that("keeps")
PICKING = that("picks") | {"narrow", "diagonal"}
SHAPE_ATTRIBUTES = frozenset({"T", "mT", "H", "data"})


class Term:
    """One operation on terms; `node` is where it stands in the source."""

    __slots__ = ("args", "binding", "form", "kind", "kw", "lib", "node", "op", "value")

    def __init__(
        self,
        op: str,
        node: ast.expr,
        args: tuple[Term, ...] = (),
        kw: dict[str, Term] | None = None,
        *,
        lib: str = "",
        form: str = "",
        value: Value = None,
        binding: Term | None = None,
        kind: Kind = "?",
    ) -> None:
        self.op = op
        self.node = node
        self.args = args
        self.kw = kw or {}
        self.lib = lib  # torch, numpy, math or nothing
        self.form = form  # call, method, operator or nothing
        self.value = value  # of a constant; the spelling of a name
        self.binding = binding  # what a name was last assigned, when that is certain
        self.kind: Kind = kind

    def get(self, name: str) -> Term | None:
        """An argument by name, however it was passed."""
        if name in self.kw:
            return self.kw[name]
        order = ADAM if "Adam" in self.op else row(self.op).takes
        if name in order and order.index(name) < len(self.args):
            return self.args[order.index(name)]
        return None

    def const(self, name: str) -> Value:
        """An argument's constant value, None when it is not constant or absent."""
        arg = self.get(name)
        return number_of(arg) if arg is not None else None

    @property
    def children(self) -> Iterator[Term]:
        yield from self.args
        yield from self.kw.values()

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.args))
        return f"{self.value}" if self.op in ("name", "const") else f"{self.op}({inside})"


ADAM = ("params", "lr", "betas", "eps")  # the arguments of an optimizer, in order


def number_of(term: Term | None) -> Value:
    """The number a term stands for, through names, signs and `float(...)`."""
    if term is None:
        return None
    term = resolve(term)
    if term.op == "const":
        return term.value if isinstance(term.value, int | float) else None
    if term.op == "neg":
        inner = number_of(term.args[0])
        return -inner if isinstance(inner, int | float) else None
    if term.op in ("add", "sub", "mul") and len(term.args) == 2:
        a = number_of(term.args[0])
        # Not before that is known to be one: variables of variables branch without end.
        b = number_of(term.args[1]) if isinstance(a, int | float) else None
        if isinstance(a, int | float) and isinstance(b, int | float):
            return a + b if term.op == "add" else a - b if term.op == "sub" else a * b
    if term.op == "div" and len(term.args) == 2 and all(a.op == "const" for a in term.args):
        a, b = (t.value for t in term.args)
        return a / b if isinstance(a, int | float) and isinstance(b, int | float) and b else None
    return None


def resolve(term: Term) -> Term:
    """Follow variables to what they were assigned."""
    for _ in range(12):
        if term.op != "name" or term.binding is None:
            return term
        term = term.binding
    return term


def joined(*parts: Term) -> Kind:
    """The kind of what arithmetic on these gives."""
    kinds = {p.kind for p in parts}
    if "other" in kinds:
        return "other"
    if "tensor" in kinds:
        return "tensor"
    if "array" in kinds:
        return "array"
    return "scalar" if kinds == {"scalar"} else "?"


def strip(term: Term, *, whole: bool = False) -> Term:
    """Follow variables and look through what changes only shape, place or type, and through what picks
    some of the values, unless the `whole` is asked for."""
    for _ in range(24):
        term = resolve(term)
        shape_only = term.op in SHAPE_OPS or (term.op == "attr" and term.value in SHAPE_ATTRIBUTES)
        if not shape_only or not term.args or (whole and _picks(term)):
            return term
        term = term.args[0]
    return term


def _picks(term: Term) -> bool:
    if term.op == "index" and isinstance(term.node, ast.Subscript):
        return not re.fullmatch(r"[\s,:.()]*(None[\s,:.()]*)*", ast.unparse(term.node.slice))
    return term.op in PICKING


def same(a: Term, b: Term, depth: int = 12) -> bool:
    """Do two terms certainly have the same value?"""
    if a is b:
        return True
    if depth == 0:
        return False
    if a.op == "name" and b.op == "name" and a.value == b.value and a.binding is b.binding:
        return True
    a, b = resolve(a), resolve(b)
    if a is b:
        return True
    if (
        a.op != b.op
        or a.value != b.value
        or len(a.args) != len(b.args)
        or a.kw.keys() != b.kw.keys()
    ):
        return False
    if a.op in ("name", "param", "unknown") or row(a.op).does & {"random", "allocates"}:
        return a.op == "name" and a.binding is b.binding
    return all(same(x, y, depth - 1) for x, y in zip(a.children, b.children, strict=True))


def same_values(a: Term, b: Term) -> bool:
    """As `same`, whatever the shapes."""
    return same(a, b) or same(strip(a, whole=True), strip(b, whole=True))


def walk(term: Term, depth: int = 30) -> Iterator[Term]:
    """A term and everything inside it, without following variables."""
    yield term
    if depth:
        for child in term.children:
            yield from walk(child, depth - 1)


def walk_through(term: Term, depth: int = 12) -> Iterator[Term]:
    """A term and everything inside it, variables followed."""
    yield term
    if depth == 0:
        return
    if term.op == "name" and term.binding is not None:
        yield from walk_through(term.binding, depth - 1)
    for child in term.children:
        yield from walk_through(child, depth - 1)


def names_in(term: Term) -> set[str]:
    """Every variable and attribute spelled in a term."""
    return {str(t.value) for t in walk(term) if t.op == "name"}


def mentions(term: Term, other: Term) -> bool:
    """Does `other` occur in `term`?"""
    return any(same(part, other) for part in walk(term))


def known_small(term: Term) -> bool:
    """Is what was added a literal of at most 1e-6? (Dropping it then moves no ordinary value.)"""
    t = strip(term)
    values = [number_of(a) for a in t.args]
    if t.op == "sub" and t.args and strip(t.args[0]).op == "add":  # 1 + eps - s
        values += [number_of(a) for a in strip(t.args[0]).args]
    return any(isinstance(v, float) and 0 < v <= 1e-6 for v in values)
