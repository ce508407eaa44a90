"""The statements of a function, read through as a calculator would: nothing of the program changes."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from whynan.arrays.plain import Unknown, asked, truth
from whynan.source.trees import Function, function_of, lambda_of, tree_of

if TYPE_CHECKING:
    from whynan.arrays.again import Again

NOTHING = object()
IGNORED = (ast.Pass, ast.Assert, ast.Import, ast.ImportFrom)


class Left(Exception):
    """`return`, `break`, `continue`."""

    def __init__(self, how: type[ast.stmt], value: Any = None) -> None:
        self.how, self.value = how, value


@dataclass(slots=True)
class Room:
    """Where names are looked up: a running frame, or a call that is read through."""

    code: CodeType
    outside: Mapping[str, Any]
    tree: ast.Module
    own: dict[str, Any] = field(default_factory=dict)
    runs: bool = False  # its variables are the program's, as they are now
    asked: set[ast.AST] = field(default_factory=set)


def entered(
    function: Any, given: list[Any], named: dict[str, Any]
) -> tuple[Room, Function | ast.Lambda]:
    """A function of the program's with what it is given; of `NOTHING`, its names stay unknown."""
    function = getattr(function, "__wrapped__", function)
    if isinstance(function, MethodType):
        function, given = function.__func__, [function.__self__, *given]
    elif not isinstance(function, (FunctionType, type)):
        inside = inspect.getattr_static(type(function), "__call__", None)
        function, given = inside, [function, *given]
    if not isinstance(function, FunctionType):
        raise Unknown
    code, outside = function.__code__, {**vars(builtins), **function.__globals__}
    body = function_of(code) if code.co_name != "<lambda>" else lambda_of(code)
    if body is None or isinstance(body, ast.Module) or code.co_flags & inspect.CO_GENERATOR:
        raise Unknown
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not given yet
            outside[name] = cell.cell_contents
    bound = asked(inspect.signature(function).bind_partial, *given, **named)
    bound.apply_defaults()
    own = {n: v for n, v in bound.arguments.items() if v is not NOTHING}
    return Room(code, outside, tree_of(code.co_filename), own), body


def run(again: Again, body: list[ast.stmt], room: Room) -> None:
    for statement in body:
        again.count()
        _statement(again, statement, room)


def _statement(again: Again, node: ast.stmt, room: Room) -> None:
    if isinstance(node, ast.Assign):
        value = again.value(node.value, room)
        for target in node.targets:
            store(again, target, value, room)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            store(again, node.target, again.value(node.value, room), room)
    elif isinstance(node, ast.AugAssign):
        operands = [again.value(node.target, room), again.value(node.value, room)]
        store(again, node.target, again.computed(node, type(node.op), operands, room), room)
    elif isinstance(node, ast.Return):
        raise Left(ast.Return, again.value(node.value, room) if node.value else None)
    elif isinstance(node, ast.Break | ast.Continue):
        raise Left(type(node))
    elif isinstance(node, ast.If):
        run(again, node.body if truth(again.value(node.test, room)) else node.orelse, room)
    elif isinstance(node, ast.For):
        _for(again, node, room)
    elif isinstance(node, ast.While):
        while truth(again.value(node.test, room)):
            if not _turn(again, node.body, room):
                return
        run(again, node.orelse, room)
    elif isinstance(node, ast.With):
        run(again, node.body, room)  # `np.errstate`, `torch.no_grad()`
    elif isinstance(node, ast.Expr):
        with suppress(Unknown):  # it gives nothing to a name; what it puts into objects is noted
            again.value(node.value, room)
    elif not isinstance(node, IGNORED):
        raise Unknown


def _for(again: Again, node: ast.For, room: Room) -> None:
    for item in again.each(again.value(node.iter, room)):
        store(again, node.target, item, room)
        if not _turn(again, node.body, room):
            return
    run(again, node.orelse, room)


def _turn(again: Again, body: list[ast.stmt], room: Room) -> bool:
    """One round of a loop; False if it was the last one."""
    try:
        run(again, body, room)
    except Left as left:
        if left.how is ast.Return:
            raise
        return left.how is ast.Continue
    return True


def store(again: Again, target: ast.expr, value: Any, room: Room) -> None:
    """Into names of this reading, and into a note of what objects would hold."""
    if isinstance(target, ast.Name):
        room.own[target.id] = value
    elif isinstance(target, ast.Attribute):
        again.written[id(again.value(target.value, room)), target.attr] = value
    elif isinstance(target, ast.Subscript):
        owner, key = again.value(target.value, room), again.value(target.slice, room)
        if not isinstance(key, (int, str, float)):
            raise Unknown
        again.written[id(owner), key] = value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = list(again.each(value))
        starred = any(isinstance(t, ast.Starred) for t in target.elts)
        if len(parts) != len(target.elts) or starred:
            raise Unknown
        for part, item in zip(target.elts, parts, strict=True):
            store(again, part, item, room)
    else:
        raise Unknown
