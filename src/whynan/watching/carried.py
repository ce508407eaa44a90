"""What a turn of the loop takes over from the one before: a hidden state, an observation, a running mean.

When its statements are to be executed once more, such a name has its next value already. So at the end of a
step the values of those names are noted, without copying them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch

from whynan.seam.sites import THIRD_PARTY, USER, kind_of_file
from whynan.seam.tensors import any_bad, tensors_in
from whynan.seam.variables import locals_of
from whynan.source.bodies import Lead, leads_to
from whynan.source.turns import taken_over

MAX_FRAMES = 3
CALLERS = 2  # of a model
MAX_NAMES = 16
MAX_BYTES = 1 << 22  # of what a turn that is over began with
MAX_WRAPPERS = 2
MAX_ITEMS = 64  # of a collection, that are looked at
COLLECTIONS = (list, tuple, dict, set)
NUMBERS = frozenset({int, float, bool, str, type(None)})


_Turns = tuple[dict[str, Any], dict[str, Any] | None] | None  # of this turn, and of the one before


class Carried:
    """By frame and name."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[CodeType, int], frozenset[str]] = {}
        self._at_calls: dict[tuple[int, int], tuple[CodeType, frozenset[str]]] = {}
        self._values: dict[CodeType, dict[str, Any]] = {}
        self._turns: dict[tuple[int, int], _Turns] = {}

    def note(self, frame: FrameType | None) -> None:
        """A step is over, and the next one begins with this."""
        for found, lasti in islice(user_frames(frame), MAX_FRAMES):
            place = (found.f_code, lasti)
            wanted = self._wanted.get(place)
            if wanted is None:
                leads = leads_to(found.f_code, lasti)
                names = frozenset(n for lead in leads for n in lead.carried)
                wanted = self._wanted[place] = names if len(names) <= MAX_NAMES else frozenset()
            if wanted:
                self._values[found.f_code] = values_of(found, wanted)

    def note_call(self, frame: FrameType | None, *, of_model: bool = True) -> None:
        """A model is called, a value is read, a loss differentiated: what the turn began with is at hand
        still. Microseconds count here, and the hash of a code object takes one."""
        left = CALLERS
        while frame is not None and left:
            code = frame.f_code
            if kind_of_file(code.co_filename) == USER:
                left -= 1
                known = self._at_calls.get((id(code), frame.f_lasti))
                wanted = self._at_call(code, frame.f_lasti) if known is None else known[1]
                if wanted:
                    values = {n: _without_graph(v) for n, v in values_of(frame, wanted).items()}
                    self._note_turn(frame, values, of_model=of_model)
            frame = frame.f_back

    def _note_turn(self, frame: FrameType, values: dict[str, Any], *, of_model: bool) -> None:
        """What is held here is held until the next turn comes to this place: where a program only reads
        or differentiates, nothing large is."""
        place, is_little = (id(frame.f_code), frame.f_lasti), _is_little(values)
        older = self._turns.get(place)
        self._turns[place] = (values, older and older[0]) if is_little else None
        if is_little or of_model:
            self._values[frame.f_code] = values
        elif older is not None:
            self._values.pop(frame.f_code, None)

    def turn_before(
        self, code: CodeType, lasti: int
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What the turn before began with, and what this one did, if it went bad in between."""
        now, before = self._turns.get((id(code), lasti)) or (None, None)
        if now is None or before is None or not _bad(now.values()) or _bad(before.values()):
            return None
        return before, now

    def _at_call(self, code: CodeType, lasti: int) -> frozenset[str]:
        names = taken_over(code, lasti)
        names = names if len(names) <= MAX_NAMES else frozenset()
        self._at_calls[id(code), lasti] = code, names
        return names

    def is_bad(self) -> bool:
        """Whether something non-finite was taken over."""
        return any(_bad(found.values()) for found in self._values.values())

    def of(self, lead: Lead, frame: FrameType) -> dict[str, Any] | None:
        """What the names of a way had for values; None where that is not known."""
        if not lead.carried:
            return {}
        known = self._values.get(frame.f_code, {})
        if not all(name in known for name in lead.carried):
            return None
        return {name: known[name] for name in lead.carried}


def _is_little(values: dict[str, Any]) -> bool:
    """What a turn no longer needs would stay in memory: of a view, all that it is a view of."""
    size = 0
    for value in values.values():
        if type(value) in NUMBERS:
            continue
        if isinstance(value, COLLECTIONS) and _size(value) > MAX_ITEMS:
            return False
        for tensor in tensors_in(value):
            if tensor.grad_fn is not None:
                return False
            size += tensor.untyped_storage().nbytes()
        if type(value).__module__ == "numpy":
            size += int(getattr(value, "nbytes", 0))
    return size <= MAX_BYTES


def _size(value: Any) -> int:
    """Of a collection of collections, all of their items."""
    items = value.values() if isinstance(value, dict) else value
    inner = (
        sum(len(i) for i in items if isinstance(i, COLLECTIONS)) if len(value) <= MAX_ITEMS else 0
    )
    return len(value) + inner


def _without_graph(value: Any) -> Any:
    """The operands of all that made it would stay in memory, too."""
    has_graph = isinstance(value, torch.Tensor) and value.grad_fn is not None
    return value.detach() if has_graph else value


def _bad(values: Iterable[Any]) -> bool:
    return any_bad(tensors_in(list(values)))


def values_of(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Of the frame's own variables, and of those of the module that it declares global."""
    names, outer = [*names], frame.f_globals
    own = locals_of(frame, names)
    return {n: own[n] if n in own else outer[n] for n in names if n in own or n in outer}


def user_frames(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    """The program's own that called it, from the inside, as far as nobody else stands between but a
    wrapper around torch's optimizer or backward pass, as accelerate has them. A trainer is more than that."""
    others = 0
    while frame is not None and (kind := kind_of_file(frame.f_code.co_filename)) != USER:
        others += kind == THIRD_PARTY
        if others > MAX_WRAPPERS:
            return
        frame = frame.f_back
    while frame is not None and kind_of_file(frame.f_code.co_filename) == USER:
        yield frame, frame.f_lasti
        frame = frame.f_back
