"""Whether a value is read in order to be tested, or to be told of after such a test."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from whynan.record.asking import asks, is_asked, moved
from whynan.record.holders import Holders, arguments, place, root
from whynan.record.scopes import Scope, running
from whynan.record.sites import USER, kind_of_file

CALLERS = 6  # functions that a value is returned through
TOOLS = ModuleType | FunctionType | BuiltinFunctionType | type
EXITS = frozenset({"exit", "_exit", "quit", "abort"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function of the stack is."""

    code: CodeType
    lasti: int
    names: Mapping[str, Any] = field(compare=False)


def is_test(code: CodeType, lasti: int) -> bool:
    """`isfinite(loss.item())`; `v = loss.item()` where `isfinite(v)` or `v != v` follows, here or
    where the value is returned to; or `print(loss)` in a branch that such a test leads to and that
    does not end the loop."""
    try:
        return _is_test(tuple(_stack(code, lasti)))
    except RecursionError:
        return False  # the program's own may be deep already


def _stack(code: CodeType, lasti: int) -> Iterator[Place]:
    """The place, and those of the program's functions that called it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not (frame.f_code is code and frame.f_lasti == lasti):
        frame = frame.f_back
    yield Place(code, lasti, frame.f_globals if frame is not None else {})
    count = 0
    while frame is not None and count < CALLERS:
        frame = _function_of(frame).f_back
        if frame is not None and kind_of_file(frame.f_code.co_filename) == USER:
            count += 1
            yield Place(frame.f_code, frame.f_lasti, frame.f_globals)


def _function_of(frame: FrameType) -> FrameType:
    """A comprehension runs in a frame of its own, and stands in the source of another."""
    name = frame.f_code.co_qualname
    if not name.endswith(("comp>", "<genexpr>")):
        return frame
    around = name.rpartition(".")[0].removesuffix(".<locals>") or "<module>"
    outer = frame.f_back
    while outer is not None:
        if (outer.f_code.co_filename, outer.f_code.co_qualname) == (
            frame.f_code.co_filename,
            around,
        ):
            return _function_of(outer)
        outer = outer.f_back
    return frame


@lru_cache(maxsize=1024)
def _is_test(stack: tuple[Place, ...]) -> bool:
    """Follow the value from where it is read to the functions that it is returned to."""
    holders, read = Holders(), set[str]()
    inner: Scope | None = None
    for at in stack:
        found = running(at.code, at.lasti, at.names)
        if found is None:
            return False
        scope, node = found
        if inner is None:
            holders = Holders([node] if isinstance(node, ast.expr) else [])
            read = _read(scope, node)
            if isinstance(node, ast.Call) and asks(scope, node, Holders(arguments(node))):
                return True  # `math.isnan(loss)` reads it itself
        else:
            holders, read = _outside(inner, holders, read, scope, node)
        holders.spread(scope.nodes)
        if is_asked(scope, holders) or _tells_of_a_test(scope, node, read):
            return True
        if not holders and not read:
            return False
        # Somebody else's function that reads what it is given stands for the reading itself.
        inner = scope if kind_of_file(at.code.co_filename) == USER else None
    return False


def _read(scope: Scope, node: ast.AST) -> set[str]:
    """The places that an expression mentions, without functions, modules and `self` as a whole."""
    found = {name for n in ast.walk(node) if (name := place(n)) is not None}
    found -= set(scope.parameters[:1]) if scope.is_method else set()
    return {name for name in found if not isinstance(scope.meaning(root(name)), TOOLS)}


def _outside(
    inner: Scope, holders: Holders, read: set[str], scope: Scope, call: ast.AST
) -> tuple[Holders, set[str]]:
    """What the caller has of the value: the call's result, and objects that the function changed."""
    results = _results(inner, holders)
    outside = Holders([call] if results else [])
    if len(results) == 1 and None not in results:
        outside.slots = {call: results.pop() or 0}
    if inner.tree is scope.tree:
        outside.places = {p for p in holders.places if root(p) not in inner.locals}
    told = set[str]()
    for name, value in inner.bound(call) if isinstance(call, ast.Call) else ():
        given = place(value)
        outside.places |= moved(holders.places, name, given)
        if given is not None:
            outside.places |= {given} if name in holders.filled else set()
            told |= {given} if name in read else set()
    return outside, told


def _results(scope: Scope, holders: Holders) -> set[int | None]:
    """Which of several results hold the value; None for the result as a whole."""
    found: set[int | None] = set()
    leaving = [
        n.value for n in scope.nodes if isinstance(n, ast.Return | ast.Yield | ast.YieldFrom)
    ]
    if isinstance(scope.function, ast.Lambda):
        leaving = [scope.function.body]
    for value in leaving:
        if isinstance(value, ast.Tuple):
            found |= {i for i, part in enumerate(value.elts) if holders.hold(part)}
        elif value is not None and holders.hold(value):
            found.add(None)
    return found


def _tells_of_a_test(scope: Scope, node: ast.AST, read: set[str]) -> bool:
    """Whether the line stands in a branch of a test of what it reads, and the loop goes on."""
    if not read:
        return False
    told = Holders(places=read)  # and v = loss.item()
    told.spread(scope.nodes)
    assigned = [n for n in scope.nodes if isinstance(n, ast.Assign)]
    answers = Holders(
        places={
            name
            for n in assigned
            if any(asks(scope, part, told) for part in ast.walk(n.value))
            for target in n.targets
            if (name := place(target)) is not None
        }
    )  # ok = isfinite(loss)
    line = node.lineno  # type: ignore[attr-defined] # an expression or a statement
    loops = [n for n in scope.nodes if isinstance(n, ast.For | ast.AsyncFor | ast.While)]
    in_loop = any(n.lineno <= line <= (n.end_lineno or n.lineno) for n in loops)
    for choice in scope.nodes:
        if not isinstance(choice, ast.If):
            continue
        for branch in (choice.body, choice.orelse):
            here = branch and branch[0].lineno <= line <= (branch[-1].end_lineno or 0)
            if not here or _gives_up(scope, branch, in_loop):
                continue
            if any(asks(scope, n, told) for n in ast.walk(choice.test)) or answers.hold(
                choice.test
            ):
                return True
    return False


def _gives_up(scope: Scope, branch: list[ast.stmt], in_loop: bool) -> bool:
    """Whether it ends the loop; a function that is one step only leaves that step out."""
    leaves = ast.Break | ast.Return if in_loop else ast.Break
    nodes = [n for statement in branch for n in ast.walk(statement)]
    return any(
        isinstance(n, leaves) or (isinstance(n, ast.Call) and scope.called(n) in EXITS)
        for n in nodes
    )
