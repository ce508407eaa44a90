"""What a function of JAX's does inside, operation by operation, where `jit`, `grad` or `vmap` hide it.

JAX writes down what such a function computes (`jax.make_jaxpr`). That is computed once more here, one
operation after the other as under `jax.debug_nans`, so nothing of the program's Python runs but the tracing.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from whynan.arrays.evidence import evidence_of, unseen_of
from whynan.arrays.libraries import is_floating
from whynan.arrays.place import is_library
from whynan.model import Evidence, OpRecord, Site
from whynan.ops.table import row
from whynan.source.positions import site_at

MAX_TURNS = 10_000
HOLDERS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class TooLong(Exception):
    """More turns of a loop than anybody waits for."""


@dataclass(slots=True)
class Done:
    """One operation that was computed."""

    stack: str  # JAX's own note of the transformations: `transpose(jvp())`
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bad: Evidence | None = None
    whole: Evidence | None = None  # the same of the library's function that it is a part of


class InsideJax:
    """`first(...)`: the evidence of the first operation that made a bad value."""

    def __init__(self, user: FrameType) -> None:
        self._site = site_at(user.f_code, user.f_lasti)
        self._done: list[Done] = []
        self._ids = iter(range(sys.maxsize))
        self._loops = 0
        self._is_found = False
        self._stack = ""
        self._around: list[Site] = []  # where the calls stand that the operation is inside of
        self.turned_into: list[OpRecord] = []  # what made a NaN of the infinity

    def first(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any,
    ) -> Evidence | None:  # fmt: skip
        why = "what happens inside, which JAX has compiled"
        try:
            found = self._searched(function, args, kwargs)
        except Exception as error:  # a function that cannot be traced with these arguments
            why += f": it could not be computed step by step ({type(error).__name__})"
            found = None
        return found if found is not None else self._unseen(result, why)

    def _searched(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Evidence | None:
        jax: Any = sys.modules["jax"]
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        places = [i for i, x in enumerate(leaves) if hasattr(x, "dtype") and hasattr(x, "shape")]

        def of_arrays(*arrays: Any) -> Any:
            filled = list(leaves)
            for i, array in zip(places, arrays, strict=True):
                filled[i] = array
            given, named = jax.tree_util.tree_unflatten(tree, filled)
            return function(*given, **named)

        with _unheard():
            closed = jax.make_jaxpr(of_arrays)(*[leaves[i] for i in places])
        if closed.effects:
            raise TypeError("it has effects")
        self._run(
            closed.jaxpr, closed.consts, [leaves[i] for i in places], self._fresh(len(places))
        )
        found = next((done for done in self._done if done.bad is not None), None)
        if found is None or found.bad is None:
            return None
        if self._is_slope(found):
            return _in_its_gradient(found.bad)
        return found.whole or found.bad

    # ---- computing -----------------------------------------------------------------------------

    def _fresh(self, n: int) -> list[int]:
        return [next(self._ids) for _ in range(n)]

    def _run(
        self, jaxpr: Any, consts: Any, given: list[Any], ids: list[int]
    ) -> tuple[list[Any], list[int]]:
        room: dict[Any, tuple[Any, int]] = {}
        for variables, values, numbers in (
            (jaxpr.constvars, consts, self._fresh(len(jaxpr.constvars))),
            (jaxpr.invars, given, ids),
        ):
            room |= dict(zip(variables, zip(values, numbers, strict=True), strict=True))

        def read(atom: Any) -> tuple[Any, int]:
            return (atom.val, -1) if hasattr(atom, "val") else room[atom]

        for eqn in jaxpr.eqns:
            values, numbers = [*map(list, zip(*map(read, eqn.invars), strict=True))] or ([], [])
            made, written = self._computed(eqn, values, numbers)
            room |= dict(zip(eqn.outvars, zip(made, written, strict=True), strict=True))
        if not jaxpr.outvars:
            return [], []
        out, numbers = map(list, zip(*map(read, jaxpr.outvars), strict=True))
        return out, numbers

    def _computed(
        self, eqn: Any, values: list[Any], numbers: list[int]
    ) -> tuple[list[Any], list[int]]:
        inner = _held(eqn)
        if inner is not None:
            return self._held(eqn, inner, values, numbers)
        if eqn.primitive.name == "cond":
            branch = eqn.params["branches"][int(values[0])]
            return self._run(branch.jaxpr, branch.consts, values[1:], numbers[1:])
        bound = eqn.primitive.get_bind_params(eqn.params)
        functions, params = ((), bound) if isinstance(bound, dict) else bound  # JAX 0.10, before
        made = eqn.primitive.bind(*functions, *values, **params)
        made = list(made) if eqn.primitive.multiple_results else [made]
        bad = None
        if not (self._is_found and self.turned_into) and any(map(_is_bad, made)):
            turns = {"scan": self._scan, "while": self._while}.get(eqn.primitive.name)
            if turns is not None and not self._is_found:
                return turns(eqn, values, numbers)
            bad = self._noted(eqn, values, made)
        written = self._fresh(len(made))
        stack = f"{self._stack}{eqn.source_info.name_stack}"
        self._done.append(Done(stack, (*numbers,), (*written,), bad))
        return made, written

    def _held(
        self, eqn: Any, inner: Any, values: list[Any], numbers: list[int]
    ) -> tuple[list[Any], list[int]]:
        """A call that only holds other operations, perhaps a function of JAX's own: `solve`."""
        was_found = self._is_found
        outside = self._stack
        self._around.append(self._site_of(eqn.source_info))
        self._stack += f"{eqn.source_info.name_stack}/"
        made, written = self._run(inner.jaxpr, inner.consts, values, numbers)
        self._stack = outside
        self._around.pop()
        known = row(_name_in_jax(eqn, inner))
        if self._is_found and not was_found and known.fails and any(map(_is_bad, made)):
            part = next(done for done in self._done if done.bad is not None)
            part.whole = self._evidence(known.name, eqn, values, made, (False, True))
        return made, written

    def _noted(self, eqn: Any, values: list[Any], made: list[Any]) -> Evidence | None:
        """The evidence of the first one; of the next, that the infinity became NaN there."""
        if not self._is_found:
            bad = self._evidence(eqn.primitive.name, eqn, values, made, (False, True))
            self._is_found = bad is not None
            return bad
        follower = self._evidence(eqn.primitive.name, eqn, values, made, (True,))
        self.turned_into += [follower.origin] if follower is not None else []
        return None

    def _scan(self, eqn: Any, values: list[Any], ids: list[int]) -> tuple[list[Any], list[int]]:
        """Turn by turn."""
        np: Any = sys.modules["jax.numpy"]
        p = eqn.params
        kept, carried = p["num_consts"], p["num_carry"]
        consts, carry, rows = values[:kept], values[kept:kept + carried], values[kept + carried:]  # fmt: skip
        numbers, given = ids[kept : kept + carried], ids
        pieces: list[list[Any]] = []
        turns = range(p["length"])
        for i in reversed(turns) if p["reverse"] else turns:
            self._count()
            out, made = self._run(
                p["jaxpr"].jaxpr, p["jaxpr"].consts, [*consts, *carry, *(x[i] for x in rows)],
                [*given[:kept], *numbers, *given[kept + carried:]],
            )  # fmt: skip
            carry, numbers = out[:carried], made[:carried]
            pieces.append(out[carried:])
        if p["reverse"]:
            pieces.reverse()
        stacked = [np.stack(column) for column in zip(*pieces, strict=True)]
        return [*carry, *stacked], [*numbers, *self._fresh(len(stacked))]

    def _while(self, eqn: Any, values: list[Any], ids: list[int]) -> tuple[list[Any], list[int]]:
        p = eqn.params
        asks, does = p["cond_nconsts"], p["body_nconsts"]
        carry, numbers = values[asks + does :], ids[asks + does :]
        while True:
            self._count()
            (more,), _ = self._run(
                p["cond_jaxpr"].jaxpr, p["cond_jaxpr"].consts, [*values[:asks], *carry],
                [*ids[:asks], *numbers],
            )  # fmt: skip
            if not bool(more):
                return carry, numbers
            carry, numbers = self._run(
                p["body_jaxpr"].jaxpr, p["body_jaxpr"].consts,
                [*values[asks:asks + does], *carry], [*ids[asks:asks + does], *numbers],
            )  # fmt: skip

    def _count(self) -> None:
        self._loops += 1
        if self._loops > MAX_TURNS:
            raise TooLong

    # ---- what it proves ------------------------------------------------------------------------

    def _evidence(
        self, called: str, eqn: Any, values: list[Any], made: list[Any], infinite: tuple[bool, ...]
    ) -> Evidence | None:
        name = row(called).name or called
        inputs = [x.item() if getattr(x, "shape", None) == () and _is_literal(a) else x
                  for a, x in zip(eqn.invars, values, strict=True)]  # fmt: skip
        if eqn.primitive.name == "integer_pow":
            inputs.append(eqn.params["y"])
        out = next(x for x in made if _is_bad(x))
        site = self._site_of(eqn.source_info)
        for ask in infinite:
            found = evidence_of(name, inputs, out, site, "jax", {}, infinite=ask)
            if found is not None:
                return found
        return None

    def _site_of(self, info: Any) -> Site:
        """The innermost line of the program's own where the operation was written."""
        trace = info.traceback
        codes, instructions = trace.raw_frames() if trace is not None else ((), ())
        for code, instruction in zip(codes, instructions, strict=True):
            if isinstance(code, CodeType) and not is_library(code.co_filename):
                return site_at(code, instruction)
        return self._around[-1] if self._around else self._site

    def _is_slope(self, found: Done) -> bool:
        """Whether only a derivative needs it."""
        if "transpose(" in found.stack:
            return True
        if "jvp(" not in found.stack:
            return False
        readers: dict[int, list[Done]] = {}
        slopes: set[int] = set()
        for done in reversed(self._done):  # who reads a value comes after who made it
            users = [r for number in done.writes for r in readers.get(number, ())]
            if "transpose(" in done.stack or (users and all(id(r) in slopes for r in users)):
                slopes.add(id(done))
            for number in done.reads:
                readers.setdefault(number, []).append(done)
        return id(found) in slopes

    def _unseen(self, result: Any, why: str) -> Evidence | None:
        jax: Any = sys.modules["jax"]
        bad = next((x for x in jax.tree_util.tree_leaves(result) if _is_bad(x)), None)
        return unseen_of(bad, [], self._site, "jax.unseen", why) if bad is not None else None


def _in_its_gradient(evidence: Evidence) -> Evidence:
    """Told as the derivative of what the program's line calls."""
    site = evidence.origin.site
    called = (site.expression if site is not None else "").split("(")[0].rsplit(".", 1)[-1]
    forward = row(called).name or called
    node = "".join(part.title() for part in forward.split("_")) + "Backward0"
    origin = replace(evidence.origin, phase="backward", node=node, derived=True)
    return replace(evidence, origin=origin)


def _held(eqn: Any) -> Any:
    """The operations that a call only holds together."""
    if eqn.primitive.name in ("scan", "while", "cond", "custom_vjp_call", "shard_map"):
        inner = eqn.params.get("call_jaxpr") if eqn.primitive.name == "custom_vjp_call" else None
    else:
        inner = next((eqn.params[key] for key in HOLDERS if key in eqn.params), None)
    if inner is None:
        return None
    if not hasattr(inner, "jaxpr"):
        from jax.extend.core import ClosedJaxpr

        inner = ClosedJaxpr(inner, ())
    return inner if len(inner.jaxpr.invars) == len(eqn.invars) else None


def _name_in_jax(eqn: Any, inner: Any) -> str:
    """Of a function of JAX's own, not of the program's."""
    file = getattr(getattr(inner.jaxpr, "debug_info", None), "func_filename", None)
    return str(eqn.params.get("name", "")).strip("_") if file and is_library(file) else ""


def _is_literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def _is_bad(x: Any) -> bool:
    import numpy as np

    if not is_floating(x) or not hasattr(x, "shape"):
        return isinstance(x, float) and not np.isfinite(x)
    return not bool(np.isfinite(np.asarray(x)).all())


@contextmanager
def _unheard() -> Iterator[None]:
    """What the program prints while it is traced once more."""
    out, err = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = io.StringIO()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
