"""Places in the source, and where the value that a name gets there is read."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from whynan.repair.source import Source


class Lost(Exception):
    """The source does not show every place that a value reaches."""


@dataclass(frozen=True)
class Place:
    """A node of one file."""

    source: Source
    node: cst.CSTNode

    @property
    def above(self) -> cst.CSTNode | None:
        return self.source.parent(self.node)


def reads_of(source: Source, target: cst.Name) -> list[Place]:
    """Where the value that a name gets at `target` is read; `Lost` if that is not certain."""
    name, scope = target.value, source.scope(target)
    given = source.bindings(name, scope)
    if any(isinstance(source.parent(g), cst.AugAssign) for g in given):
        raise Lost
    found = []
    for read in source.every(cst.Name, None if scope is source.module else scope):
        if read.value != name or not source.reads(read) or _is_other(source, read, scope):
            continue
        if source.scope(read) is not scope:
            if len(given) > 1:
                raise Lost
        elif not _reaches(source, given, target, read):
            continue
        if _changes(source, read):
            raise Lost
        found.append(Place(source, read))
    return found


def _is_other(source: Source, read: cst.Name, scope: cst.CSTNode) -> bool:
    """Inside a function that has a variable of that name of its own."""
    inner = source.scope(read)
    while inner is not scope and inner is not source.module:
        if source.bindings(read.value, inner):
            return True
        inner = source.scope(inner)
    return inner is not scope


def _reaches(source: Source, given: list[cst.Name], target: cst.Name, read: cst.Name) -> bool:
    here = source.start(source.statement(read) or read)
    before = [g for g in given if source.start(g) < here]
    if not before or not _covers(source, before[-1], read):
        raise Lost  # given in a branch, or by an earlier turn of the loop
    if before[-1] is not target and _comes_round(source, target, before[-1], read):
        raise Lost
    return before[-1] is target


def _comes_round(source: Source, target: cst.Name, last: cst.Name, read: cst.Name) -> bool:
    """Whether the next turn of a loop reads what this one gave, as in `h = f(h)`."""
    around = [a for a in source.ancestors(target) if isinstance(a, (cst.For, cst.While))]
    shared = [loop for loop in around if loop in list(source.ancestors(read))]
    return any(loop not in list(source.ancestors(last)) for loop in shared)


def _covers(source: Source, given: cst.Name, read: cst.Name) -> bool:
    if isinstance(source.parent(given), cst.Param):
        return True
    line = source.statement(given)
    block = source.parent(line) if line is not None else None
    if block is None:  # `for x in ...`, `with ... as x`
        kinds = (cst.For, cst.CompFor, cst.With)
        block = next((a for a in source.ancestors(given) if isinstance(a, kinds)), None)
    return block in list(source.ancestors(read))


def _changes(source: Source, read: cst.Name) -> bool:
    """`p.clamp_(...)`, `p[0] = ...`."""
    above = source.parent(read)
    if isinstance(above, cst.Attribute):
        return above.attr.value.endswith("_")
    return isinstance(above, cst.Subscript) and isinstance(
        source.parent(above), (cst.AssignTarget, cst.AugAssign)
    )


def class_of(source: Source, node: cst.CSTNode) -> cst.ClassDef | None:
    """The class whose method it is."""
    block = source.parent(node)
    above = source.parent(block) if block is not None else None
    return above if isinstance(above, cst.ClassDef) else None


def parameter_for(found: tuple[Place, int], call: cst.Call, arg: cst.Arg) -> cst.Name | None:
    """The parameter that an argument becomes."""
    function, skipped = found
    assert isinstance(function.node, cst.FunctionDef)
    parameters = function.node.params
    names = [p.name for p in (*parameters.params, *parameters.kwonly_params)]
    if arg.keyword is not None:
        return next((n for n in names if n.value == arg.keyword.value), None)
    position = list(call.args).index(arg) + skipped
    if any(a.star for a in call.args) or position >= len(parameters.params):
        return None
    return parameters.params[position].name


def argument_for(
    call: Place, function: Place, skipped: int, name: str
) -> cst.BaseExpression | None:
    """What a call gives for a parameter."""
    assert isinstance(call.node, cst.Call)
    for arg in call.node.args:
        parameter = parameter_for((function, skipped), call.node, arg)
        if parameter is not None and parameter.value == name:
            return arg.value
    return None
