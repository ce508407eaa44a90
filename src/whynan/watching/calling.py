"""The outermost model is called once more, recorded, with the same arguments.

So a bad output of a call without gradients is explained, once it has done harm. Before each call only the random
states are noted, and the size of what it may add to (`grown.py`). The repeat is accepted only if its output
is the same to the last bit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from whynan.model import Evidence
from whynan.seam.devices import accelerator
from whynan.seam.randomness import Saved
from whynan.seam.sites import Frames, capture, program_frames
from whynan.seam.tensors import tensors_in
from whynan.seam.threads import is_alone
from whynan.watching.body import Body
from whynan.watching.grown import Grown, can_grow
from whynan.watching.kept import Kept
from whynan.watching.repeating import Repeating, can_repeat, once_more, same_outputs
from whynan.watching.signs import Meant, Noted, is_conclusive
from whynan.watching.told import Explained, How

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

    def note(
        self, module: Any, output: Any, frame: FrameType, *, is_first: bool
    ) -> Explained | Noted | None:
        """What is needed to call it again, should its bad output come to matter: until then, and so in
        every healthy run, nothing is called twice. One that stays bad is explained once."""
        known = self._known.get(id(module))
        if known is not None or not self._may_repeat():
            return known
        local, names = self._local, frame.f_locals
        call = _Call(
            module, names.get("args", ()), names.get("kwargs", {}), output, capture(frame),
            _around(frame), local.states, local.grown, _autocasts(),
        )  # fmt: skip

        if is_first and (made := self._watch.first.of_call(frame)) is not None:
            self._known[id(module)] = made
            return made
        before = Body(self._watch, is_certain=False).note_call(module, output, frame)

        def explain() -> tuple[Evidence, How] | Meant | None:
            found = self._explain(call)
            if found is None and before is not None:
                with self._watch.spending.counted():
                    return before.explain()
            return None if found is None else (found.evidence, found.how)

        return Noted(call.frames, explain)

    def _explain(self, call: _Call) -> Explained | None:
        if not self._may_repeat():
            return None
        with self._watch.spending.counted():
            evidence, counters = self._again(call, [])
            if evidence is None and counters:
                evidence, _ = self._again(call, counters)
        if evidence is None or not is_conclusive(evidence):
            return None
        self._known[id(call.module)] = Explained(evidence, "call")
        return self._known[id(call.module)]

    def _may_repeat(self) -> bool:
        watch = self._watch
        return (
            can_repeat(watch)
            and watch.progress.may_go_live
            and watch.progress.threads <= {threading.get_ident()}
            and watch.spending.may_go_on()
        )

    def _again(self, call: _Call, counters: Counters) -> tuple[Evidence | None, Counters]:
        """What it shows, and which counters go on by a call: they are set back the next time."""
        watch, local = self._watch, self._local
        states, grown, randomness = call.states, call.grown, watch.rewind.randomness
        around = call.around if is_alone() else []
        roots = [call.module, call.args, call.kwargs, call.output]
        kept = Kept(roots, randomness, around, with_parameters=False)
        is_strict = watch.plan.policy != "stop"  # else the program is over
        cannot_be_put_back = kept.generators or kept.consumed or not kept.is_complete
        if states is None or (is_strict and cannot_be_put_back):
            return None, []

        def start() -> None:
            randomness.restore(states)
            if grown is not None:
                grown.cut()
            for names, key, by in counters:
                names[key] -= by

        now = local.states, local.earlier, local.grown
        end_s = time.monotonic() + MAX_S
        phase = Calling(watch, None, [])
        with once_more(phase, kept, start, end_s, is_strict=is_strict) as execute:
            again, raised = execute(call.once_more)
            local.states, local.earlier, local.grown = now
            is_same = raised is None and same_outputs(call.output, again)
            # Any two outputs of NaN are the same.
            if not is_same or not (_has_finite(call.output) or kept.is_as_it_was()):
                return None, kept.counted()
            return watch.quiet(self._explained, call, again), []

    def _explained(self, call: _Call, output: Any) -> Evidence | None:
        recorder = self._watch.recorder
        harms = recorder.outputs.ends(call.module, output, call.frames)
        return recorder.explain(harms[0]) if harms else None


class _Call(NamedTuple):
    """One call of a model, as it was."""

    module: Any
    args: Any
    kwargs: Any
    output: Any
    frames: Frames | None
    around: list[Any]
    states: Saved | None
    grown: Grown | None
    autocasts: list[tuple[str, torch.dtype]]  # that were in force

    def once_more(self) -> Any:
        """Without gradients, as then."""
        with torch.no_grad(), contextlib.ExitStack() as stack:
            for kind, dtype in self.autocasts:
                stack.enter_context(torch.autocast(kind, dtype))
            return self.module(*self.args, **self.kwargs)


def _autocasts() -> list[tuple[str, torch.dtype]]:
    device = accelerator()
    kinds = ("cpu",) if device is None else ("cpu", device.type)
    return [(k, torch.get_autocast_dtype(k)) for k in kinds if torch.is_autocast_enabled(k)]


def _around(frame: FrameType | None) -> list[Any]:
    """The variables of the program's own files whose functions are running."""
    found = {id(f.f_globals): f.f_globals for f in program_frames(frame)}
    return list(found.values())


def _has_finite(output: Any) -> bool:
    found = [t for t in tensors_in(output) if t.is_floating_point()]
    return any(bool(torch.isfinite(t).any()) for t in found)
