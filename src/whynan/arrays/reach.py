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
from typing import Any

from whynan.arrays.contents import NONE, kinds_in, kinds_of_text
from whynan.arrays.numpy_errors import Event, Place
from whynan.arrays.statements import (
    Body,
    given_to,
    literal_text,
    names_read,
    names_written,
    own_parts,
    scope_of,
    spread,
    statement_at,
    statements,
    written_in_loops,
)
from whynan.model import Site


@dataclass(frozen=True, slots=True)
class Way:
    """How an event is joined to a later place."""

    name: str | None  # the program's name for the value there; None within one statement
    seen: bool  # every name on the way was looked at
    innocent: frozenset[str] = NONE  # `nan`, `inf`: what else in the last statement holds that
    value: Any = None  # what the name holds


def way(event: Event, places: tuple[Place, ...], *, tested: bool = False) -> Way | None:
    """From the event to a place the program is at now, through the innermost common frame.

    `tested`: what an `if` around that place asks of a value counts as a use of it.
    """
    for depth, made in enumerate(event.places):
        for used in places:
            if used.frame == made.frame and used.code is made.code:
                last = used is places[0]
                return _within(made, used, own=depth == 0, look_beside=last, tested=tested)
    return None


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


def results(event: Event, scope: Mapping[str, Any]) -> list[str]:
    """Names of the main program that hold the event's value at its end and are read by nothing."""
    main = [p for p in event.places if p.code.co_filename == scope.get("__file__")]
    body = _body(main[-1]) if main else None
    at = main[-1] if isinstance(body, ast.Module) else None
    statement = statement_at(body, at.line, at.column) if body is not None and at else None
    if body is None or statement is None:
        return []
    reached = spread(body, names_written(statement))
    read = {n.id for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    read |= {n for n in reached if n.startswith("_")}  # a name for what is thrown away
    return [n for n in reached if n not in read and _trail(body, n, reached, scope) is not None]


def _within(
    made: Place, used: Place, *, own: bool, look_beside: bool = False, tested: bool = False,
    held: bool = False,
) -> Way | None:  # fmt: skip
    body = _body(made)
    if body is None:
        return None
    first = statement_at(body, made.line, made.column)
    last = statement_at(body, used.line, used.column)
    if first is None or last is None:
        return None
    around = [s for s in statements(body) if s is not last and _contains(s, last)]
    scope = _names_of(made)
    reached = spread(body, names_written(first))
    if held:
        reached |= _held(body, names_read(last), reached, scope)
    innocent = _beside(last, reached, scope) if look_beside else NONE
    if first is last or first in around:
        return Way(None, seen=False, innocent=innocent)
    kinds = (ast.For, ast.AsyncFor, ast.With, *((ast.If, ast.While) if tested else ()))
    heads = [s for s in around if isinstance(s, kinds)]
    for statement in (last, *heads):
        for name in sorted(names_read(statement) & reached.keys()):
            seen = _trail(body, name, reached, scope)
            if seen is not None:
                value = (scope or {}).get(name)
                return Way(name, seen=seen and own, innocent=innocent, value=value)
    return None


def _held(
    body: Body, names: set[str], reached: Mapping[str, str | None], scope: Mapping[str, Any] | None
) -> dict[str, str | None]:
    """Names of what an object on the way keeps, and that object's name."""
    found: dict[str, str | None] = {}
    for name in names - reached.keys():
        for owner in sorted(reached):
            if scope is None:
                keeps = name in given_to(body, owner)
            else:
                inside = getattr(scope.get(owner), "__dict__", None) or {}
                keeps = name in scope and any(v is scope[name] for v in inside.values())
            if keeps:
                found[name] = owner
                break
    return found


def _trail(
    body: Body, name: str, reached: Mapping[str, str | None], scope: Mapping[str, Any] | None
) -> bool | None:
    """None: a name on the way is finite; else whether all of them could be looked at."""
    if scope is None:
        return False
    seen = True
    current: str | None = name
    while current is not None:
        kinds = kinds_in(scope[current]) if current in scope else None
        if kinds == NONE and (current == name or current not in written_in_loops(body)):
            return None
        seen = seen and bool(kinds)
        current = reached[current]
    return seen


def _beside(
    statement: ast.stmt, reached: Mapping[str, str | None], scope: Mapping[str, Any] | None
) -> frozenset[str]:
    """NaN and infinities in a statement that the event has nothing to do with."""
    found: frozenset[str] = NONE
    for name in names_read(statement) - reached.keys():
        found |= kinds_in((scope or {}).get(name)) or NONE
    for part in own_parts(statement):
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute) and node.attr in ("nan", "inf"):
                found |= {node.attr}
    return found.union(*map(kinds_of_text, literal_text(statement)))


def _contains(outer: ast.stmt, inner: ast.stmt) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _body(place: Place) -> Body | None:
    code = place.code
    return scope_of(code.co_filename, code.co_qualname, code.co_firstlineno)


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
