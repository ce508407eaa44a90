"""The outermost model is called once more, recorded, with the same arguments.

A bad output of a call without gradients is explained where it comes about. Before each call only the random
states are noted, and the size of what it may add to (`grown.py`). The repeat is accepted only if its output
is the same to the last bit.
"""

from __future__ import annotations

import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.model import Evidence
from whynan.seam.randomness import Saved
from whynan.seam.sites import USER, capture, kind_of_file
from whynan.seam.tensors import tensors_in
from whynan.seam.threads import is_alone
from whynan.watching.grown import Grown, can_grow
from whynan.watching.kept import Kept, same_values
from whynan.watching.repeating import Repeating, can_repeat, once_more
from whynan.watching.signs import Explained, is_conclusive
from whynan.watching.told import How

if TYPE_CHECKING:
    from whynan.watching.watch import Watch


MAX_S = 60.0
Counters = list[tuple[dict[Any, Any], Any, int]]


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.states: Saved | None = None
        self.earlier: Saved | None = None  # of the call before
        self.grown: Grown | None = None


class Calling(Repeating):
    """Nothing of what the model does counts."""

    how: How = "call"


class Calls:
    """Knows what the last call of a model started from."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._local = _PerThread()
        self.passed: Saved | None = None  # random states after a backward pass that others follow
        self._known: dict[int, Explained] = {}  # by module, while its outputs stay bad

    @property
    def states(self) -> tuple[Saved | None, ...]:
        """Random states when a model was called last, and before that."""
        return self.passed, self._local.states, self._local.earlier

    def begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        local = self._local
        local.earlier, local.states = local.states, self._watch.rewind.randomness.save()
        local.grown = None
        if can_grow(args) or (kwargs and can_grow(kwargs.values())):
            local.grown = Grown([args, kwargs])

    def is_finite(self, module: Any) -> None:
        if self._known:
            self._known.pop(id(module), None)

    def explain(self, module: Any, output: Any, frame: FrameType) -> Explained | None:
        """Where a bad output began. One that stays bad is explained once."""
        known = self._known.get(id(module))
        if known is not None or not self._may_repeat():
            return known
        with self._watch.spending.counted():
            evidence, counters = self._again(module, output, frame, [])
            if evidence is None and counters:
                evidence, _ = self._again(module, output, frame, counters)
        if evidence is None or not is_conclusive(evidence):
            return None
        self._known[id(module)] = Explained(evidence, "call")
        return self._known[id(module)]

    def _may_repeat(self) -> bool:
        watch = self._watch
        return (
            can_repeat(watch)
            and watch.progress.may_go_live
            and watch.progress.threads <= {threading.get_ident()}
            and self._local.states is not None
            and watch.spending.may_go_on()
        )

    def _again(
        self, module: Any, output: Any, frame: FrameType, counters: Counters
    ) -> tuple[Evidence | None, Counters]:
        """What it shows, and which counters go on by a call: they are set back the next time."""
        watch, local = self._watch, self._local
        names = frame.f_locals
        args, kwargs = names.get("args", ()), names.get("kwargs", {})
        states, grown, randomness = local.states, local.grown, watch.rewind.randomness
        earlier = local.earlier
        around = _around(frame) if is_alone() else []
        kept = Kept([module, args, kwargs, output], randomness, around, with_parameters=False)
        if kept.generators or not kept.is_complete or states is None:
            return None, []

        def start() -> None:
            randomness.restore(states)
            if grown is not None:
                grown.cut()
            for names, key, by in counters:
                names[key] -= by

        end_s = time.monotonic() + MAX_S
        phase = Calling(watch, None, [])
        with once_more(phase, kept, start, end_s, is_strict=True) as execute:
            again, raised = execute(lambda: module(*args, **kwargs))
            local.states, local.earlier, local.grown = states, earlier, grown
            is_same = raised is None and _is_same(output, again)
            # Any two outputs of NaN are the same.
            if not is_same or not (_has_finite(output) or kept.is_as_it_was()):
                return None, kept.counted()
            return watch.quiet(self._explained, module, again, frame), []

    def _explained(self, module: Any, output: Any, frame: FrameType) -> Evidence | None:
        recorder = self._watch.recorder
        harms = recorder.outputs.ends(module, output, capture(frame))
        return recorder.explain(harms[0]) if harms else None


def _around(frame: FrameType | None) -> list[Any]:
    """The variables of the program's own functions that are running."""
    found: list[Any] = []
    while frame is not None:
        if kind_of_file(frame.f_code.co_filename) == USER:
            found += [frame.f_globals, *frame.f_locals.values()]
        frame = frame.f_back
    return found


def _is_same(one: Any, other: Any) -> bool:
    ours, theirs = tensors_in(one), tensors_in(other)
    return len(ours) == len(theirs) and all(
        same_values(a.detach(), b.detach()) for a, b in zip(ours, theirs, strict=True)
    )


def _has_finite(output: Any) -> bool:
    found = [t for t in tensors_in(output) if t.is_floating_point()]
    return any(bool(torch.isfinite(t).any()) for t in found)
