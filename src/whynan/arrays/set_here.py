"""A number that explains an origin, and that the program computed: the assignment that gives it.

A temperature that a schedule takes down to 0 stands in no file. What gives one of its names a value
is computed once more, as the program stands; only what comes to that very number is told.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import CodeType, FrameType, FunctionType

from whynan.arrays.again import Again
from whynan.arrays.lines import Room, entered
from whynan.arrays.made_again import objects_of, stack
from whynan.arrays.plain import Unknown, is_number
from whynan.diagnosis.naming import operand_names
from whynan.model import Evidence, OpRecord, Setting
from whynan.seam.sites import own_files, own_places
from whynan.source.settings import added_names, computed_behind, odd_numbers, setting_named
from whynan.source.trees import Function, function_of, tree_of


def with_setting(evidence: Evidence, frame: FrameType) -> Evidence:
    """The same harm with what the program computed for it, if that is sure."""
    origin = evidence.origin
    term = _zero_term(origin) if evidence.around.setting is None else None
    if term is not None:
        return replace(evidence, around=replace(evidence.around, setting=term))
    if origin.phase in ("optimizer", "data") or evidence.around.setting is not None:
        return evidence
    frames, files = [*stack(frame)], [*own_files()]
    for op, role, value in odd_numbers(origin):
        found: dict[tuple[str, int], Setting] = {}
        for name, file, node in computed_behind(op.site, [role], files) if op.site else ():
            if any(_is(value, node, room, again) for again, room in _rooms(file, node, frames)):
                found[file, node.lineno] = Setting(
                    name=name, value=value, file=file, line=node.lineno,
                    text=f"{name}={ast.unparse(node)}",
                )  # fmt: skip
        if len(found) == 1:
            around = replace(evidence.around, setting=next(iter(found.values())))
            return replace(evidence, around=around)
    return evidence


def _zero_term(origin: OpRecord) -> Setting | None:
    """`shift` of `step + shift`, which is 0: the one that the user has set."""
    if not origin.op.startswith("array."):
        return None
    places = own_places()
    for operand, name in zip(origin.inputs, operand_names(origin), strict=True):
        if operand.value != 0 or name is None:
            continue
        found = setting_named(added_names(name), 0.0, *places)
        if found is not None:
            return found
    return None


def _is(value: float, node: ast.expr, room: Room, again: Again) -> bool:
    with suppress(Unknown):
        computed = again.value(node, room)
        if is_number(computed) and getattr(computed, "ndim", 0) == 0:
            return math.isclose(float(computed), value, rel_tol=1e-6)
    return False


def _rooms(file: str, node: ast.expr, frames: list[FrameType]) -> Iterator[tuple[Again, Room]]:
    """Where an expression can be computed: a function that runs, a method of an object that is kept."""
    for frame in frames:
        if frame.f_code.co_filename == file and _holds(frame.f_code, node):
            again = Again()
            yield again, again.room(frame)
            return
    for kept in objects_of(frames):
        for method in (m for m in vars(type(kept)).values() if isinstance(m, FunctionType)):
            if method.__code__.co_filename == file and _holds(method.__code__, node):
                with suppress(Unknown):
                    yield Again(), entered(method, [kept], {})[0]


def _holds(code: CodeType, node: ast.expr) -> bool:
    """Whether it stands in that very function."""
    tree = tree_of(code.co_filename)
    around = [f for f in ast.walk(tree) if isinstance(f, Function) and _spans(f, node)]
    return function_of(code) is max(around, key=lambda f: f.lineno, default=tree)


def _spans(function: Function, node: ast.expr) -> bool:
    return function.lineno <= node.lineno <= (function.end_lineno or function.lineno)
