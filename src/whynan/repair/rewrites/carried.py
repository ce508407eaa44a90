"""What a loop carries: variables whose new value is made of the old one, and all their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from whynan.repair.source import Expression, Source

BY_HAND = {cst.MultiplyAssign: "+", cst.DivideAssign: "-"}  # in logarithms
Given = tuple[cst.SimpleStatementLine, cst.Name, Expression, str | None]


@dataclass(frozen=True)
class Carried:
    """The variables, and each line that gives them a value: before the loop and in it."""

    source: Source
    loop: cst.For
    given: dict[str, list[Given]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.given)

    def reads_outside(self) -> Iterator[cst.Name]:
        """All reads in the function; those in the lines above are among them."""
        scope = self.source.scope(self.loop)
        for name in self.source.every(cst.Name, None if scope is self.source.module else scope):
            if name.value in self.given and self.source.reads(name):
                yield name


def carried_by(source: Source, loop: cst.For) -> Carried | None:
    """None where a variable gets its value in another way as well."""
    inside = {g[1].value: g for g in _assignments(source, loop)}
    reads = {name: _names_in(source, given[2]) for name, given in inside.items()}
    for name, given in inside.items():
        reads[name] |= {name} if given[3] is not None else set()
    names = [name for name in inside if _comes_back(name, reads)]
    found: dict[str, list[Given]] = {}
    scope = source.scope(loop)
    for name in names:
        first = [g for g in _statements(source, scope) if g[1].value == name]
        targets = source.bindings(name, scope)
        plain = [id(g[1]) for g in first if g[3] is None]
        by_hand = {id(g[1]) for g in first if g[3] is not None}
        if sorted(plain) != sorted({*map(id, targets)} - by_hand) or len(first) > 2:
            return None
        if any(g[0] is not inside[name][0] and not _is_before(source, g, loop) for g in first):
            return None
        found[name] = first
    return Carried(source, loop, found) if found else None


def _is_before(source: Source, given: Given, loop: cst.For) -> bool:
    return given[3] is None and source.start(given[0]) < source.start(loop)


def _comes_back(name: str, reads: dict[str, set[str]]) -> bool:
    """Whether a variable's next value depends on its last one."""
    seen: set[str] = set()
    waiting = [*reads[name]]
    while waiting:
        other = waiting.pop()
        if other == name:
            return True
        if other in reads and other not in seen:
            seen.add(other)
            waiting += reads[other]
    return False


def _names_in(source: Source, value: Expression) -> set[str]:
    nodes = (value, *source.below(value))
    return {n.value for n in nodes if isinstance(n, cst.Name) and source.reads(n)}


def _assignments(source: Source, loop: cst.For) -> Iterator[Given]:
    """Of the loop's own statements, not of a branch in it."""
    for line in loop.body.body if isinstance(loop.body, cst.IndentedBlock) else ():
        if isinstance(line, cst.SimpleStatementLine):
            yield from _given(line)


def _statements(source: Source, scope: cst.CSTNode) -> Iterator[Given]:
    for line in source.every(cst.SimpleStatementLine, None if scope is source.module else scope):
        if source.scope(line) is scope:
            yield from _given(line)


def _pairs(
    line: cst.SimpleStatementLine, target: cst.BaseExpression, value: Expression
) -> Iterator[Given]:
    """Also of `u, v = a, b`."""
    if isinstance(target, cst.Name):
        yield line, target, value, None
    elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        both = zip(target.elements, value.elements, strict=False)
        same = len(target.elements) == len(value.elements)
        for one, other in both if same else ():
            yield from _pairs(line, one.value, other.value)


def _given(line: cst.SimpleStatementLine) -> Iterator[Given]:
    """`name = value` or `name *= value`, alone on its line."""
    statement = line.body[0] if len(line.body) == 1 else None
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        yield from _pairs(line, target, statement.value)
    elif isinstance(statement, cst.AugAssign) and isinstance(statement.target, cst.Name):
        operator = BY_HAND.get(type(statement.operator))
        if operator is not None:
            yield line, statement.target, statement.value, operator
