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
from whynan.seam.tensors import bad_values
from whynan.source.bodies import Lead, leads_to
from whynan.source.turns import taken_over

MAX_FRAMES = 3
MAX_NAMES = 16
MAX_WRAPPERS = 2


class Carried:
    """By frame and name."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[CodeType, int], frozenset[str]] = {}
        self._at_calls: dict[tuple[CodeType, int], frozenset[str]] = {}
        self._values: dict[CodeType, dict[str, Any]] = {}

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
        """A model is called: what the turn began with is at hand still."""
        for found, lasti in islice(user_frames(frame), MAX_FRAMES):
            place = (found.f_code, lasti)
            wanted = self._at_calls.get(place)
            if wanted is None:
                names = taken_over(found.f_code, lasti)
                wanted = names if len(names) <= MAX_NAMES else frozenset()
                self._at_calls[place] = wanted
            if wanted:
                self._values[found.f_code] = values_of(found, wanted)

    def is_bad(self) -> bool:
        """Whether something non-finite was taken over."""
        values = [v for found in self._values.values() for v in found.values()]
        return any(bad_values(v) is not None for v in values if isinstance(v, torch.Tensor))

    def of(self, lead: Lead, frame: FrameType) -> dict[str, Any] | None:
        """What the names of a way had for values; None where that is not known."""
        if not lead.carried:
            return {}
        known = self._values.get(frame.f_code, {})
        if not all(name in known for name in lead.carried):
            return None
        return {name: known[name] for name in lead.carried}


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
