"""Where the result of a NumPy operation went: names that carry it, frame by frame.

NumPy has no hook on its arrays, so the way is read from the source: the statement that was
running, the names it writes, those that are computed from them. Each of these names that can be
looked at must hold a NaN or infinity now; one that is finite breaks the way (`where`,
`nan_to_num`, a row that was dropped).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from whynan.arrays.contents import NONE, kinds_in, kinds_of_text
from whynan.arrays.numpy_errors import Event, Place, places_of
from whynan.model import Site
from whynan.source.bindings import Scope
from whynan.source.carriers import (
    given_to,
    names_read,
    names_written,
    scope_of,
    spread,
    statements_of,
    written_in_loops,
)
from whynan.source.trees import head, statement_at


@dataclass(frozen=True, slots=True)
class Way:
    """How an event is joined to a later place."""

    name: str | None  # the program's name for the value there; None within one statement
    seen: bool  # every name on the way was looked at
    innocent: frozenset[str] = NONE  # `nan`, `inf`: what else in the last statement holds that
    value: Any = None  # what the name holds


def way(
    start: tuple[Place, ...],
    places: tuple[Place, ...],
    *,
    tested: bool = False,
    held: bool = False,
) -> Way | None:
    """From where a value was made to a place the program is at now, through the innermost common frame.

    `tested`: what an `if` around that place asks of a value counts as a use of it; `held`: so does what
    an object keeps that it was given to.
    """
    for depth, made in enumerate(start):
        for used in places:
            if used.frame == made.frame and used.code is made.code:
                last = used is places[0]
                return _within(
                    made, used, own=depth == 0, look_beside=last, tested=tested, held=held
                )
    return None


def keeps(start: tuple[Place, ...], frame: FrameType) -> bool:
    """Whether what this frame is at holds a NaN that came from there, and no other."""
    found = way(start, places_of(frame), held=True)
    if found is None or found.name is None or "nan" in found.innocent:
        return False
    return "nan" in (kinds_in(found.value) or NONE)


def way_to_site(event: Event, site: Site) -> Way | None:
    """From the event to a line that has run already, in a function that was on its stack.

    What an object holds, its methods may change: a schedule the optimizer it was given.
    """
    for depth, made in enumerate(event.places):
        code = made.code
        if code.co_filename == site.file and code.co_qualname == site.function:
            used = Place(made.frame, code, site.line, site.column)
            return _within(made, used, own=depth == 0, held=True)
    return None


def results(event: Event, values: Mapping[str, Any]) -> list[str]:
    """Names of the main program that hold the event's value at its end and are read by nothing."""
    main = [p for p in event.places if p.code.co_filename == values.get("__file__")]
    scope = scope_of(main[-1].code) if main else None
    if scope is None or not isinstance(scope.node, ast.Module):
        return []
    statement = statement_at(scope.node, main[-1].line, main[-1].column)
    if statement is None:
        return []
    reached = spread(scope, names_written(scope, statement))
    nodes = [n for n in ast.walk(scope.node) if isinstance(n, ast.Name)]
    read = {n.id for n in nodes if isinstance(n.ctx, ast.Load)}
    read |= {n for n in reached if n.startswith("_")}  # a name for what is thrown away
    return [n for n in reached if n not in read and _trail(scope, n, reached, values) is not None]


def _within(
    made: Place, used: Place, *, own: bool, look_beside: bool = False, tested: bool = False,
    held: bool = False,
) -> Way | None:  # fmt: skip
    scope = scope_of(made.code)
    if scope is None:
        return None
    first, last = (statement_at(scope.node, at.line, at.column) for at in (made, used))
    if first is None or last is None:
        return None
    around = [s for s in statements_of(scope) if s is not last and _contains(s, last)]
    values = _names_of(made)
    reached = spread(scope, names_written(scope, first))
    if held:
        reached |= _held(scope, names_read(scope, last), reached, values)
    innocent = _beside(scope, last, reached, values) if look_beside else NONE
    if first is last or first in around:
        return Way(None, seen=False, innocent=innocent)
    kinds = (ast.For, ast.AsyncFor, ast.With, *((ast.If, ast.While) if tested else ()))
    heads = [s for s in around if isinstance(s, kinds)]
    for statement in (last, *heads):
        for name in sorted(names_read(scope, statement) & reached.keys()):
            seen = _trail(scope, name, reached, values)
            if seen is not None:
                value = (values or {}).get(name)
                return Way(name, seen=seen and own, innocent=innocent, value=value)
    return None


def _held(
    scope: Scope, names: set[str], reached: Mapping[str, str | None],
    values: Mapping[str, Any] | None,
) -> dict[str, str | None]:  # fmt: skip
    """Names of what an object on the way keeps, and that object's name."""
    found: dict[str, str | None] = {}
    for name in names - reached.keys():
        for owner in sorted(reached):
            if values is None:
                keeps = name in given_to(scope, owner)
            else:
                inside = getattr(values.get(owner), "__dict__", None) or {}
                keeps = name in values and any(v is values[name] for v in inside.values())
            if keeps:
                found[name] = owner
                break
    return found


def _trail(
    scope: Scope, name: str, reached: Mapping[str, str | None], values: Mapping[str, Any] | None
) -> bool | None:
    """None: a name on the way is finite; else whether all of them could be looked at."""
    if values is None:
        return False
    seen = True
    current: str | None = name
    while current is not None:
        kinds = kinds_in(values[current]) if current in values else None
        if kinds == NONE and (current == name or current not in written_in_loops(scope)):
            return None
        seen = seen and bool(kinds)
        current = reached[current]
    return seen


def _beside(
    scope: Scope, statement: ast.stmt, reached: Mapping[str, str | None],
    values: Mapping[str, Any] | None,
) -> frozenset[str]:  # fmt: skip
    """NaN and infinities in a statement that the event has nothing to do with."""
    found: frozenset[str] = NONE
    for name in names_read(scope, statement) - reached.keys():
        found |= kinds_in((values or {}).get(name)) or NONE
    for node in head(statement):
        if isinstance(node, ast.Attribute) and node.attr in ("nan", "inf"):
            found |= {node.attr}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= kinds_of_text(node.value)
    return found


def _contains(outer: ast.stmt, inner: ast.stmt) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _names_of(place: Place) -> Mapping[str, Any] | None:
    """The variables of a frame, if it is still running."""
    frame = sys._getframe(1)
    while frame is not None:
        if id(frame) == place.frame and frame.f_code is place.code:
            return frame.f_locals
        frame = frame.f_back  # type: ignore[assignment] # the last one has none
    main = sys.modules.get("__main__")
    module = place.code.co_qualname == "<module>"
    if module and getattr(main, "__file__", None) == place.code.co_filename:
        return vars(main)
    return None
