"""A number or an array that came into torch bad, and of which nobody warned: the expression that made it.

While the program stands where the harm was seen, what its source says is computed once more: what
sets a learning rate, what is written in the call that the value came in by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import FrameType, FunctionType, MethodType
from typing import Any

from whynan.arrays.again import Again
from whynan.arrays.lines import Room
from whynan.arrays.place import is_library
from whynan.arrays.plain import Unknown, is_bad, is_number, same_kind
from whynan.model import Evidence, OpRecord, Site
from whynan.source.positions import node_at
from whynan.source.trees import Loop, function_of, statements

MAX_TRIED = 40  # statements
MAX_ROOMS = 40  # functions
COMPOUND = (ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)


def made_again(evidence: Evidence, frame: FrameType) -> Evidence | None:
    """The same harm with its origin in the arithmetic of plain numbers, if that is sure."""
    entry = evidence.origin
    frames = [*stack(frame)]
    made = None
    if entry.phase == "optimizer" and evidence.origin_kind == "number":
        for key in (k for k, v in evidence.hyper.items() if is_bad(v)):
            made = made or _rate(key, frames)
    if made is None and entry.site is not None:
        made = _argument(entry, frames, is_number=evidence.origin_kind == "number")
    if made is None:
        return None
    origin = replace(made.origin, step=entry.step)
    path = (entry, *evidence.path)
    return replace(evidence, origin=origin, origin_kind="operation", path=path)


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


# ---- learning rates and their like ------------------------------------------------------------


def _rate(key: str, frames: list[FrameType]) -> Evidence | None:
    objects = [*objects_of(frames)]
    optimizers = [o for o in objects if isinstance(getattr(o, "param_groups", None), list)]
    groups = [g for o in optimizers for g in o.param_groups if is_bad(_plain(g.get(key)))]
    if not groups:
        return None
    for schedule in objects:
        if any(getattr(schedule, "optimizer", None) is o for o in optimizers) and key == "lr":
            found = _of_a_schedule(schedule, groups)
            if found is not None:
                return found
    for frame in frames:
        if not is_library(frame.f_code.co_filename):
            found = _set_here(frame, groups, key)
            if found is not None:
                return found
    return None


def _plain(value: Any) -> Any:
    return value if is_number(value) else None


def objects_of(frames: list[FrameType]) -> Iterator[Any]:
    """What the variables on the stack hold, and what objects among these keep."""
    seen: set[int] = set()
    for frame in frames:
        inside = frame.f_globals if frame.f_code.co_name == "<module>" else frame.f_locals
        for value in [*inside.values()]:
            if type(value).__module__ == "builtins" or id(value) in seen:
                continue
            seen.add(id(value))
            yield value
            kept = inspect_dict(value)
            yield from (v for v in kept if type(v).__module__ != "builtins" and id(v) not in seen)


def inspect_dict(value: Any) -> list[Any]:
    try:
        return [*object.__getattribute__(value, "__dict__").values()]
    except (AttributeError, TypeError):
        return []


def _of_a_schedule(schedule: Any, groups: list[dict[str, Any]]) -> Evidence | None:
    """What torch's `get_lr`, or one that was written for it, computes."""
    compute = getattr(type(schedule), "get_lr", None)
    again = Again()
    if isinstance(compute, FunctionType):
        with suppress(Unknown):
            for rate in again.each(again.call(compute, [schedule], {})):
                if any(same_kind(rate, g["lr"]) for g in groups) and again.made(rate):
                    return again.made(rate)
    return None


def _set_here(frame: FrameType, groups: list[dict[str, Any]], key: str) -> Evidence | None:
    """The statement of a running function that puts the number into a group of parameters."""
    body = function_of(frame.f_code)
    tried = 0
    for statement in statements(body.body, inner=False) if body is not None else ():
        if isinstance(statement, COMPOUND) or tried >= MAX_TRIED:
            continue
        if isinstance(statement, Loop):
            line = frame.f_lineno
            if statement.lineno <= line <= (statement.end_lineno or line):
                continue  # it is running: its statements are tried
        again = Again()
        room = again.room(frame)
        if not _may_set(statement, key, again, room):
            continue
        tried += 1
        with suppress(Unknown):
            again.run(statement, room)
        for group in groups:
            value = again.written.get((id(group), key))
            found = again.made(value)
            if found is not None and same_kind(value, group[key]):
                return found
    return None


def _may_set(statement: ast.stmt, key: str, again: Again, room: Room) -> bool:
    for node in ast.walk(statement):
        found = False
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = isinstance(node.slice, ast.Constant) and node.slice.value == key
        elif isinstance(node, ast.Call):
            with suppress(Unknown):
                called = again.value(node.func, room)
                if isinstance(called, FunctionType | MethodType):
                    found = not is_library(called.__code__.co_filename)
        if found:
            return True
    return False


# ---- what stands in a call --------------------------------------------------------------------


def _argument(entry: OpRecord, frames: list[FrameType], *, is_number: bool) -> Evidence | None:
    """A part of the expression by which the value came in."""
    site = entry.site
    node = node_at(site) if site is not None else None
    again = Again()
    room = _room_at(site, frames, again) if site is not None else None
    if room is None or node is None:
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.expr) and part is not node:
            with suppress(Unknown):
                value = again.value(part, room)
                found = again.made(value)
                if found is not None and _came_in(value, entry, is_number=is_number):
                    return found
    return None


def _room_at(site: Site, frames: list[FrameType], again: Again) -> Room | None:
    """The function of that line, if it runs or is called by one that does."""
    own = [again.room(f) for f in frames if not is_library(f.f_code.co_filename)]
    waiting, looked = own, 0
    while waiting and looked < MAX_ROOMS:
        room = waiting.pop(0)
        code, looked = room.code, looked + 1
        if (code.co_filename, code.co_qualname) == (site.file, site.function):
            return room
        body = function_of(code)
        for node in ast.walk(body) if body is not None else ():
            if isinstance(node, ast.Call):
                with suppress(Unknown):
                    inner, _ = again.room_of_call(node, room)
                    if not is_library(inner.code.co_filename):
                        waiting.append(inner)
    return None


def _came_in(value: Any, entry: OpRecord, *, is_number: bool) -> bool:
    """Whether it is what torch was given."""
    import numpy as np

    array = np.asarray(value)
    if is_number:
        given = [n for n in entry.scalars.values() if is_bad(n)]
        return array.size == 1 and any(same_kind(float(array.reshape(())), n) for n in given)
    stats = entry.inputs[0].stats if entry.inputs else None
    if stats is None or array.shape != tuple(stats.shape):
        return False
    return int(np.isnan(array).sum()) == stats.nan and int(np.isinf(array).sum()) == stats.inf
