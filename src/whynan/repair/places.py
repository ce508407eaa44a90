"""Places in the source, and where the value that a name gets there is read."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import libcst as cst

from whynan.repair.source import Source
from whynan.source.bindings import Binding
from whynan.source.steps import CASTS


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
    names = source.names
    waiting, found = [source.binding(target)], list[cst.Name]()
    for binding in waiting:
        if binding is None:
            raise Lost
        for read in names.reads(binding):
            node, change = source.original(read), names.bindings.get(read)
            if node is None or names.given(read) is not binding:
                raise Lost  # given in a branch, or by an earlier turn of the loop
            if change is not None and not _is_cast(change):
                raise Lost  # `p.clamp_(...)`, `p[0] = ...`, `p += 1`
            found.append(node)
            waiting += [change] if change is not None else []
    return [Place(source, node) for node in sorted(found, key=source.start)]


def _is_cast(change: Binding) -> bool:
    """`net.half()`: the same module."""
    call = change.value
    func = call.func if isinstance(call, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in CASTS


def returned(function: Place) -> cst.Return:
    """The one thing that a function gives back; `Lost` if a branch of it returns something else."""
    source, node = function.source, function.node
    returns = [r for r in source.every(cst.Return, node) if source.scope(r) is node]
    if len(returns) != 1 or not isinstance(node, cst.FunctionDef):
        raise Lost
    return returns[0]


def given_by(assign: cst.Assign) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Targets and values of `a = b` and of `a, b = c, d`."""
    target, value = assign.targets[0].target, assign.value
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        both = zip(target.elements, value.elements, strict=False)
        return [(one.value, other.value) for one, other in both]
    return [(target, value)]


def target_of(source: Source, element: cst.Element) -> cst.BaseExpression | None:
    """`b` for the second value of `a, b = f(), g()`."""
    values = source.parent(element)
    assign = source.parent(values) if isinstance(values, cst.Tuple) else None
    if not isinstance(values, cst.Tuple) or not isinstance(assign, cst.Assign):
        return None
    if assign.value is not values or len(assign.targets) > 1:
        return None
    left: cst.BaseExpression = assign.targets[0].target
    if not isinstance(left, cst.Tuple) or len(left.elements) != len(values.elements):
        return None
    return left.elements[values.elements.index(element)].value


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
