"""The statements that led to harm are executed once more, in place.

The loop itself is not asked: its frame is still there, or was when a value was read, with the batch and all
that is computed from in its variables. `source/bodies.py` has the statements. What they show is accepted only
if it is the same: the same losses, the same gradients, the same tensors under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import CellType, CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from whynan.model import Evidence
from whynan.seam.optimizers import Optimizer
from whynan.seam.private import MODULE_CALL
from whynan.seam.sites import USER, capture, kind_of_file, program_frames
from whynan.seam.training import Step
from whynan.source.bodies import Lead, leads_to
from whynan.watching.carried import Carried, user_frames, values_of
from whynan.watching.kept import Kept, same_values
from whynan.watching.repeating import (
    Place,
    Reached,
    Repeating,
    ToBackward,
    ToRead,
    can_repeat,
    once_more,
    position,
)
from whynan.watching.signs import Meant, Noted, is_conclusive
from whynan.watching.told import How

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

MAX_TRIES = 12
MAX_S = 60.0
LAST_STATEMENTS = (1, 3, 8)  # of a module, so many are tried
MAX_FRAMES = 8  # of the program's own, that are tried
ARRAYS = ("float32", "float64", "int64", "int32", "uint8")
Start = Callable[[], None]


@dataclass(slots=True)
class Way:
    """One way of doing it again."""

    work: Callable[[], Any]
    roots: list[Any]  # what it may change is reached from these
    code: CodeType | None = None  # of the statements, compiled anew
    made: dict[str, Any] = field(default_factory=dict)  # by name, the last time
    how: How = "body"

    @property
    def is_telling(self) -> bool:
        """Whether two different turns would differ in what they made."""
        return any(bool((v - v == 0).any()) for v in self.made.values() if v.dtype != torch.bool)

    def made_the_same(self, raised: BaseException, phase: Repeating) -> bool:
        """Whether names hold the same tensors as they did in the program's own turn."""
        trace = raised.__traceback__
        while (
            self.code is not None and trace is not None and trace.tb_frame.f_code is not self.code
        ):
            trace = trace.tb_next
        if self.code is None or trace is None:
            return self.code is None
        now = trace.tb_frame.f_locals
        return all(
            _same(now.get(name), then)
            for name, then in self.made.items()
            if name not in phase.before_update
        )


class Body:
    """Repeats what led to a place, from the innermost frame in which that can be done."""

    def __init__(self, watch: Watch, *, is_certain: bool = True, apart: bool = False) -> None:
        self._watch = watch
        self._is_certain = is_certain
        self._apart = apart  # from the other ranks of the job: gradients are not summed up
        self._tries = 0
        self._end_s = time.monotonic() + (MAX_S / 2 if apart else MAX_S)  # the others wait
        # Before harm is certain, or where the program goes on, everything must be put back.
        self._is_strict = not is_certain or watch.plan.policy != "stop"

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
        ways, states = self._ways(user_frames(frame)), self._known_states()
        return self._first(ways, states, lambda: ToBackward(self._watch, None, losses))

    def of_error(self, error: BaseException) -> tuple[Evidence, How] | None:
        """What an exception complains of that has ended the program: its frames are still there."""
        if not self._is_possible():
            return None
        for way in self._ways_to_error(error):
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

    def note_read(self, tensor: torch.Tensor, frame: FrameType) -> Noted | None:
        """A bad value is taken out. What is needed to do that again, should it come to matter."""
        if not self._is_possible():
            return None
        ways = list(self._ways(user_frames(frame), later=True, most=LAST_STATEMENTS))
        then, place, states = (
            tensor.detach(),
            position(frame.f_code, frame.f_lasti),
            self._known_states(),
        )

        def explain() -> tuple[Evidence, How] | Meant | None:
            found = Body(self._watch)._of_read(ways, then, place, states)
            return (found, "body") if isinstance(found, Evidence) else found

        return Noted(capture(frame), explain) if ways else None

    def _of_read(
        self, ways: list[Way], then: torch.Tensor, place: Place, states: list[Any]
    ) -> Evidence | Meant | None:
        if not self._is_possible():
            return None
        meant: list[Meant] = []
        found = self._first(ways, states, lambda: ToRead(self._watch, then, place, meant))
        return found or next(iter(meant), None)

    def _first(
        self, ways: Iterable[Way], states: list[Any], phase: Callable[[], Repeating]
    ) -> Evidence | None:
        """What the first way shows that gets there."""
        for way in ways:
            for start in self._starts(states):
                if self._is_enough():
                    return None
                evidence = self._reaches(phase(), way, start)
                if evidence is not None and is_conclusive(evidence):
                    return evidence
                if evidence is not None:
                    break
        return None

    # ---- doing it --------------------------------------------------------------------------

    def _is_possible(self) -> bool:
        return (
            can_repeat(self._watch, apart=self._apart)
            and self._watch.progress.is_in_main_thread_alone()
        )

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
        yield from self._ways(user_frames(step.frame))

    def _ways_to_error(self, error: BaseException) -> Iterator[Way]:
        """From the innermost of the frames that it left. The outermost model was called from one of them."""
        traces, trace = [], error.__traceback__
        while trace is not None:
            traces.append(trace)
            trace = trace.tb_next
        called = next((t.tb_frame for t in traces if t.tb_frame.f_code is MODULE_CALL), None)
        for trace in reversed(traces):
            frame = trace.tb_frame
            if kind_of_file(frame.f_code.co_filename) == USER:
                yield from self._ways([(frame, trace.tb_lasti)], most=LAST_STATEMENTS)
            elif frame is called:
                yield _called_again(frame)

    def _ways(
        self,
        frames: Iterable[tuple[FrameType, int]],
        *,
        later: bool = False,
        most: Sequence[int] = (),
    ) -> Iterator[Way]:
        """`later`: the variables will have other values by then."""
        for number, (frame, lasti) in enumerate(frames):
            if number >= MAX_FRAMES:
                return
            for lead in leads_to(frame.f_code, lasti, most):
                arguments = _arguments(lead, frame, self._watch.carried)
                if arguments is not None:
                    names = dict(frame.f_globals) if later else frame.f_globals
                    work = _callable(lead, frame, names, arguments)
                    yield Way(work, _roots(frame), lead.code, _tensors(lead.made, frame))


def _roots(frame: FrameType | None) -> list[Any]:
    frames = program_frames(frame)
    return [root for f in frames for root in (f.f_globals, *f.f_locals.values())]


def _tensors(names: Iterable[str], frame: FrameType) -> dict[str, Any]:
    """And NumPy's arrays."""
    found = {n: frame.f_locals.get(n) for n in names}
    tensors = {n: v.detach() for n, v in found.items() if type(v) is torch.Tensor}
    return tensors | {n: v for n, v in found.items() if _is_array(v)}


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "dtype", None) in ARRAYS


def _same(now: Any, then: Any) -> bool:
    """What is not there, or is something else, is not compared."""
    if type(now) is torch.Tensor and type(then) is torch.Tensor:
        return same_values(now.detach(), then)
    if not (_is_array(now) and _is_array(then)):
        return True
    same_kind = now.shape == then.shape and now.dtype == then.dtype
    return same_kind and bool(((now == then) | ((now != now) & (then != then))).all())


def _called_again(frame: FrameType) -> Way:
    names = frame.f_locals
    module, args, kwargs = names["self"], names.get("args", ()), names.get("kwargs", {})
    return Way(lambda: module(*args, **kwargs), [module, args, kwargs, *_roots(frame)], how="call")


def _arguments(lead: Lead, frame: FrameType, carried: Carried) -> Mapping[str, Any] | None:
    before, found = carried.of(lead, frame), values_of(frame, lead.parameters)
    if before is None:
        return None
    given = found | before
    for name, by in lead.counted.items():
        if type(given.get(name)) is not int:
            return None
        given[name] -= by
    return given


def _callable(
    lead: Lead, frame: FrameType, names: dict[str, Any], arguments: Mapping[str, Any]
) -> Callable[[], Any]:
    cells = tuple(CellType(frame.f_locals.get(name)) for name in lead.code.co_freevars)
    function = FunctionType(lead.code, names, lead.code.co_name, None, cells)
    missing = [name for name in lead.parameters if name not in arguments]
    given = {**arguments, **dict.fromkeys(missing)}
    return lambda: function(**given)


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
