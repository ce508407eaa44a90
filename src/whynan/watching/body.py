"""The statements that led to harm are executed once more, in place.

The loop itself is not asked: its frame is still there, or was when a value was read, with the batch and all
that is computed from in its variables. `source/bodies.py` has the statements. What they show is accepted only
if it is the same: the same losses, the same gradients, the same tensors under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.model import Evidence
from whynan.seam.optimizers import Optimizer
from whynan.seam.sites import capture
from whynan.seam.training import Step
from whynan.source.bodies import leads_to
from whynan.source.whole_turns import turn_of
from whynan.watching.carried import CALLERS, user_frames
from whynan.watching.kept import Kept
from whynan.watching.repeating import (
    Reached,
    Repeating,
    ToBackward,
    ToCall,
    ToRead,
    can_repeat,
    once_more,
    position,
)
from whynan.watching.signs import Meant, Noted, is_conclusive
from whynan.watching.told import How
from whynan.watching.ways import (
    LAST_STATEMENTS,
    MAX_FRAMES,
    Turn,
    Way,
    ways,
    ways_to_error,
    whole_turn,
)

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

MAX_TRIES = 12
MAX_S = 60.0
Start = Callable[[], None]


class Body:
    """Repeats what led to a place, from the innermost frame in which that can be done."""

    def __init__(
        self,
        watch: Watch,
        *,
        is_certain: bool = True,
        apart: bool = False,
        end_s: float | None = None,
    ) -> None:
        self._watch = watch
        self._is_certain = is_certain
        self._apart = apart  # from the other ranks of the job: gradients are not summed up
        self._tries = 0
        self._may = False
        self.came_in = False  # a repeat showed that the bad value was there before it
        most_s = MAX_S / 2 if apart else MAX_S  # the others wait
        self._end_s = time.monotonic() + most_s if end_s is None else end_s
        # Before harm is certain, or where the program goes on, everything must be put back.
        # Others would see what is put into a queue.
        in_main = watch.progress.is_in_main_thread_alone()
        self._is_strict = not is_certain or watch.plan.policy != "stop" or not in_main

    # ---- what is to be explained -----------------------------------------------------------

    def of_step(self, step: Step) -> Evidence | None:
        """What an update is about to be made with that is bad."""
        if not self._is_possible():
            return None
        watch, expected = self._watch, list(self._watch.guard.local.values)
        known = _patterns(step.optimizer)
        for way in self._ways_to_step(step):
            back = 0
            while not self._is_enough():
                phase = Repeating(watch, step.optimizer, expected)

                start = self._at_the_top(back)
                same = partial(self._fits, step.optimizer, known)
                evidence = self._reaches(phase, way, start, same)
                if evidence is not None and is_conclusive(evidence):
                    return evidence
                self.came_in |= evidence is not None
                if phase.left_out <= back:
                    break
                back = phase.left_out  # updates of the loop's turn were made before this one
        return None

    def moves_on(self, step: Step) -> bool:
        """Whether the loop, asked for the same step again, would have another number for it."""
        leads = (lead for f, lasti in user_frames(step.frame) for lead in leads_to(f.f_code, lasti))
        return any(lead.moves_on for lead in islice(leads, MAX_FRAMES))

    def of_backward(self, frame: FrameType, losses: list[float]) -> Evidence | None:
        """What a loop without an optimizer is about to update its leaves with."""
        if not self._is_possible():
            return None
        found, states = ways(user_frames(frame), self._watch.carried), self._known_states()
        return self._first(found, states, lambda: ToBackward(self._watch, None, losses))

    def of_error(self, error: BaseException) -> tuple[Evidence, How] | None:
        """What an exception complains of that has ended the program: its frames are still there."""
        if not self._is_possible():
            return None
        for way in ways_to_error(error, self._watch.carried):
            for start in self._starts(self._known_states()):
                for without in (nullcontext, torch.no_grad):
                    if self._is_enough():
                        return None
                    evidence = self._raises(way, start, without, error)
                    if evidence is not None and is_conclusive(evidence):
                        return evidence, way.how
                    if evidence is not None:
                        break
        return None

    def of_read(self, tensor: torch.Tensor, frame: FrameType) -> Evidence | Meant | None:
        """A bad value is taken out: at once, while the turn is as it was."""
        if not self._is_possible():
            return None
        then, place, meant = tensor.detach(), position(frame.f_code, frame.f_lasti), list[Meant]()
        found = ways(user_frames(frame), self._watch.carried, most=LAST_STATEMENTS)
        phase = partial(ToRead, self._watch, then, place, meant)
        return self._first(found, self._known_states(), phase) or next(iter(meant), None)

    def of_turn_before(self, frame: FrameType) -> Evidence | None:
        """What this turn was given that is bad, and the one before was not: it went bad after that had come
        to where this one is."""
        if not self._is_possible():
            return None
        at = self._watch.progress.step
        for found, lasti in islice(user_frames(frame), CALLERS):
            known = self._watch.carried.turn_before(found.f_code, lasti)
            turn = turn_of(found.f_code, lasti) if known is not None else None
            if known is None or turn is None or (way := whole_turn(turn, found, *known)) is None:
                continue
            for start in self._starts(self._known_states()):
                if self._is_enough():
                    return None
                evidence = self._turns_bad(way, start)
                if evidence is not None and is_conclusive(evidence):
                    return replace(evidence, step=max(0, at - int(not turn.is_this)))
        return None

    def _turns_bad(self, way: Turn, start: Start) -> Evidence | None:
        watch, kept = self._watch, self._kept(way)
        if kept is None:
            return None
        phase = Repeating(watch, None, [])
        phase.code = way.code
        with once_more(phase, kept, start, self._end_s, is_strict=self._is_strict) as execute:
            kept.without_gradients()
            names, raised = execute(way.work)
            if raised is not None or not way.came_to(names) or not self._is_sure(way, kept):
                return None
            found: list[Evidence] = watch.quiet(phase.explained_of, way.bad(names)) or []
            return found[0] if found else None

    def note_read(self, tensor: torch.Tensor, frame: FrameType) -> Noted | None:
        """A bad value is taken out. What is needed to do that again, should it come to matter."""
        then, place = tensor.detach(), position(frame.f_code, frame.f_lasti)
        return self._noted(frame, lambda meant: ToRead(self._watch, then, place, meant))

    def note_call(self, module: Any, output: Any, frame: FrameType) -> Noted | None:
        """A model is called with something bad. What is needed to see where that came from, right after
        the call was repeated by itself."""
        return self._noted(frame, lambda _: ToCall(self._watch, module, output), at_once=True)

    def _noted(
        self, frame: FrameType, phase: Callable[[list[Meant]], Repeating], *, at_once: bool = False
    ) -> Noted | None:
        if not self._is_possible():
            return None
        watch, states = self._watch, self._known_states()
        found = list(ways(user_frames(frame), watch.carried, later=True, most=LAST_STATEMENTS))

        def explain() -> tuple[Evidence, How] | Meant | None:
            body, meant = Body(watch), list[Meant]()
            if not at_once and not body._is_possible():
                return None
            evidence = body._first(found, states, lambda: phase(meant))
            return (evidence, "body") if evidence is not None else next(iter(meant), None)

        return Noted(capture(frame), explain) if found else None

    def _first(
        self, among: Iterable[Way], states: list[Any], phase: Callable[[], Repeating]
    ) -> Evidence | None:
        """What the first way shows that gets there."""
        for way in among:
            for start in self._starts(states):
                if self._is_enough():
                    return None
                evidence = self._reaches(phase(), way, start)
                if evidence is not None and is_conclusive(evidence):
                    return evidence
                if evidence is not None:
                    self.came_in = True
                    break
        return None

    # ---- doing it --------------------------------------------------------------------------

    def _is_possible(self) -> bool:
        """Asked once: while a repeat is put away, it looks as if a mode of the program's were there."""
        self._may = self._may or (
            can_repeat(self._watch, apart=self._apart)
            and self._watch.progress.is_in_a_thread_alone()
        )
        return self._may

    def _is_enough(self) -> bool:
        self._tries += 1
        return self._tries > MAX_TRIES or time.monotonic() > self._end_s

    def _kept(self, way: Way) -> Kept | None:
        watch = self._watch
        roots = [*watch.progress.optimizers, *watch.rewind.buffers.live, *way.roots]
        kept = Kept(roots, watch.rewind.randomness)
        cannot_be_put_back = kept.generators or kept.consumed or not kept.is_complete
        return None if self._is_strict and cannot_be_put_back else kept

    def _reaches(
        self, phase: Repeating, way: Way, start: Start, same: Callable[[], bool] | None = None
    ) -> Evidence | None:
        """What was found, if it came to the same end."""
        kept = self._kept(way)
        if kept is None:
            return None
        phase.code = way.code
        with once_more(phase, kept, start, self._end_s, is_strict=self._is_strict) as execute:
            kept.without_gradients()
            _, raised = execute(way.work)
            if not isinstance(raised, Reached) or not phase.found:
                return None
            is_same = self._is_sure(way, kept) if same is None else same()
            if not is_same or not way.made_the_same(raised, phase):
                return None
            return self._completed(phase.found[0])

    def _raises(
        self, way: Way, start: Start, without: Callable[[], Any], error: BaseException
    ) -> Evidence | None:
        watch, kept = self._watch, self._kept(way)
        if kept is None:
            return None

        def work() -> None:
            with without():
                way.work()

        phase = Repeating(watch, None, [])
        phase.code = way.code
        with once_more(phase, kept, start, self._end_s, is_strict=self._is_strict) as execute:
            kept.without_gradients()
            _, raised = execute(work)
            if type(raised) is not type(error) or str(raised) != str(error):
                return None
            if not way.made_the_same(raised, phase) or not self._is_sure(way, kept):
                return None
            found: Evidence | None = watch.quiet(self._explained, raised)
            return None if found is None else self._completed(found)

    def _completed(self, evidence: Evidence) -> Evidence:
        """While its batch is at hand."""
        if not self._is_certain or not is_conclusive(evidence):
            return evidence
        return self._watch.told.completed(evidence)

    def _fits(self, optimizer: Optimizer, known: list[Any]) -> bool:
        now = _patterns(optimizer)
        if self._apart:  # a sum is bad where one of its parts is
            return len(now) == len(known) and all(n >= k for n, k in zip(now, known, strict=True))
        return now == known

    def _is_sure(self, way: Way, kept: Kept) -> bool:
        """What draws random numbers shows by its finite values that it drew the same ones: NaN is NaN."""
        return way.is_telling or not kept.has_drawn()

    def _explained(self, raised: BaseException) -> Evidence | None:
        harm = self._watch.recorder.raised(raised)
        return None if harm is None else self._watch.recorder.explain(harm)

    # ---- where it begins -------------------------------------------------------------------

    def _at_the_top(self, back: int) -> Start:
        return lambda: self._watch.rewind.to_the_top(back)

    def _known_states(self) -> list[Any]:
        """Random states that a turn may have begun with."""
        watch = self._watch
        return [s for s in (watch.rewind.states_at(0), *watch.calls.states) if s is not None]

    def _starts(self, states: list[Any]) -> Iterator[Start]:
        randomness = self._watch.rewind.randomness
        for saved in states:
            yield lambda saved=saved: randomness.restore(saved)  # type: ignore[misc]  # a default
        yield lambda: None

    def _ways_to_step(self, step: Step) -> Iterator[Way]:
        """Of doing it again; the shortest first."""
        watch, closure = self._watch, step.closure
        if closure is not None:

            def run() -> None:
                closure()
                watch.quiet(watch.step_begins, step)

            yield Way(run, [])
        yield from ways(user_frames(step.frame), self._watch.carried)


def _patterns(optimizer: Optimizer) -> list[Any]:
    """Of each gradient, how many of its values are finite, and what these add up to."""
    found: list[Any] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
                found.append(gradient is None)
                continue
            finite = gradient.isfinite()
            found.append(int(finite.sum()))
    return found
