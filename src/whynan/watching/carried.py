"""What a turn of the loop takes over from the one before: a hidden state, an observation, a running mean.

When its statements are to be executed once more, such a name has its next value already. So at the end of a
step the values of those names are noted, without copying them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from whynan.seam.sites import THIRD_PARTY, USER, kind_of_file
from whynan.seam.tensors import bad_values, tensors_in
from whynan.source.bodies import Lead, leads_to
from whynan.source.turns import taken_over

MAX_FRAMES = 3
CALLERS = 2  # of a model
MAX_NAMES = 16
MAX_BYTES = 1 << 20  # of what a turn that is over began with
MAX_WRAPPERS = 2
MAX_ITEMS = 64  # of a collection, that are looked at


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

    def note_call(self, frame: FrameType | None) -> None:
        """A model is called: what the turn began with is at hand still. Microseconds count here, and the
        hash of a code object takes one."""
        left = CALLERS
        while frame is not None and left:
            code = frame.f_code
            if kind_of_file(code.co_filename) == USER:
                left -= 1
                known = self._at_calls.get((id(code), frame.f_lasti))
                wanted = self._at_call(code, frame.f_lasti) if known is None else known[1]
                if wanted:
                    self._note_turn(frame, values_of(frame, wanted))
            frame = frame.f_back

    def _note_turn(self, frame: FrameType, values: dict[str, Any]) -> None:
        place = (id(frame.f_code), frame.f_lasti)
        self._values[frame.f_code] = values
        older = self._turns.get(place)
        self._turns[place] = (values, older and older[0]) if _is_little(values) else None

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
    """What a turn no longer needs would stay in memory."""
    if any(len(v) > MAX_ITEMS for v in values.values() if isinstance(v, (list, tuple, dict, set))):
        return False
    return sum(t.nbytes for t in tensors_in(values)) <= MAX_BYTES


def _bad(values: Iterable[Any]) -> bool:
    return any(bad_values(t) is not None for t in tensors_in(list(values)))


def values_of(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Of the frame's own variables, and of those of the module that it declares global."""
    own, outer = frame.f_locals, frame.f_globals
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
