"""The phase in which the statements that led to harm are executed once more, recorded, in place.

The loop itself is not asked: its frame is still there, with the batch and all that is computed from in
its variables. `source/bodies.py` has the statements, `kept.py` puts back what they change, and
`seam/effects.py` leaves them before they do something outside. What they show is accepted only if it is
the same step: the same losses, the same gradients, the same tensors under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.record.harm import Harm
from whynan.seam import default_device
from whynan.seam.effects import Outside, can_be_seen, none_outside
from whynan.seam.events import Decision
from whynan.seam.optimizers import Optimizer
from whynan.seam.private import dispatch_modes, function_modes
from whynan.seam.sites import LIBRARY, OWN, USER, kind_of_file
from whynan.seam.training import Step
from whynan.source.bodies import Lead, leads_to
from whynan.watching.kept import Kept, same_values
from whynan.watching.live import Live
from whynan.watching.signs import is_conclusive

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

MAX_TRIES = 8
MAX_S = 60.0
MORE_BACKWARD = 8  # passes than the step had: another optimizer's, but not a whole epoch


class Reached(BaseException):
    """The repeat has come to where harm was seen."""


class Repeating(Live):
    """Hears what the statements do; nothing of it counts, nobody is told."""

    how = "body"

    def __init__(self, watch: Watch, optimizer: Optimizer | None, losses: list[float]) -> None:
        super().__init__(watch)
        self.found: list[tuple[Sign, Evidence]] = []
        self.left_out = 0  # updates that are made already
        self.is_reached = False
        self._optimizer = optimizer
        self._losses = losses
        self._passes = 0

    def settle(self) -> None: ...
    def fetch_begins(self) -> None: ...
    def step_left_out(self) -> None: ...
    def _unit_is_over(self) -> None: ...
    def operations_are_many(self) -> None: ...
    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None: ...
    def text_shown(self, text: str, frame: FrameType) -> None: ...
    def output_returned(self, module: Any, bad: list[Harm]) -> None: ...
    def average_spoilt(self, spoilt: list[Harm]) -> None: ...
    def leaves_updated(self, spoilt: list[Harm]) -> None: ...
    def array_saved(self, bad: bool, frame: FrameType) -> None: ...
    def broke(self) -> None: ...

    def saved(self, obj: Any, frame: FrameType) -> None:
        raise Outside

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        self._passes += 1
        if self._passes > len(self._losses) + MORE_BACKWARD:
            raise Outside  # it goes through more than one step
        super().backward_begins(roots, frame)

    def step_begins(self, step: Step) -> Decision:
        watch = self.watch
        if step.optimizer is not self._optimizer or not self._is_the_same():
            self.left_out += 1
            watch.forget_step()
            return "cancel"
        super().step_begins(step)
        self.is_reached = True
        raise Reached

    def _is_the_same(self) -> bool:
        now = self.watch.guard.loss_values()
        return len(now) == len(self._losses) and all(map(_equal, now, self._losses))

    def _leave_out(self) -> Decision:
        return "go"

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        self._harmed = True
        self.found.append((sign, evidence))


def _equal(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


class Body:
    """Repeats what led to a step, from the innermost frame in which that can be done."""

    how = "body"

    def __init__(self, watch: Watch, *, apart: bool = False) -> None:
        self._watch = watch
        self._apart = apart  # from the other ranks of the job: gradients are not summed up
        self._tries = 0
        self._end_s = time.monotonic() + (MAX_S / 2 if apart else MAX_S)  # the others wait

    def of_step(self, step: Step) -> Evidence | None:
        """What an update is about to be made with that is bad."""
        if not self._is_possible():
            return None
        watch = self._watch
        expected = list(watch.guard.local.values)
        known = _patterns(step.optimizer)
        for work, frame, lead in self._ways(step):
            back = 0
            while not self._is_enough():
                phase = Repeating(watch, step.optimizer, expected)
                evidence = self._run(
                    phase, work, frame, lead, back, lambda: self._fits(step.optimizer, known)
                )
                if evidence is not None:
                    return evidence
                if phase.left_out <= back:
                    break
                back = phase.left_out  # updates of the loop's turn that were made before this one
        return None

    def _ways(
        self, step: Step
    ) -> Iterator[tuple[Callable[[], Any], FrameType | None, Lead | None]]:
        """Of doing it again; the shortest first."""
        if step.closure is not None:
            watch, closure = self._watch, step.closure

            def run() -> None:
                closure()
                watch.quiet(watch.step_begins, step)

            yield run, None, None
        for frame in _user_frames(step.frame):
            for lead in leads_to(frame.f_code, frame.f_lasti):
                arguments = _arguments(lead, frame)
                if arguments is not None:
                    yield _callable(lead, frame, arguments), frame, lead

    def _is_possible(self) -> bool:
        watch = self._watch
        return (
            watch.progress.traces
            and not watch.told.has_begun
            and watch.progress.is_in_main_thread_alone()
            and not dispatch_modes()
            and default_device.is_all(function_modes())
            and can_be_seen()
            and (self._apart or not _is_distributed())
        )

    def _fits(self, optimizer: Optimizer, known: list[Any]) -> bool:
        now = _patterns(optimizer)
        if self._apart:  # a sum is bad where one of its parts is
            return len(now) == len(known) and all(n >= k for n, k in zip(now, known, strict=True))
        return now == known

    def _is_enough(self) -> bool:
        self._tries += 1
        return self._tries >= MAX_TRIES or time.monotonic() > self._end_s

    def _run(
        self, phase: Repeating, work: Callable[[], Any], frame: FrameType | None,
        lead: Lead | None, back: int, is_same: Callable[[], bool],
    ) -> Evidence | None:  # fmt: skip
        """What was found, if it came to the same end."""
        watch = self._watch
        kept = Kept(self._roots(frame, lead), watch.rewind.randomness)
        if watch.plan.policy != "stop" and (kept.generators or not kept.is_complete):
            return None
        is_strict = watch.plan.policy != "stop"  # the program goes on afterwards
        older = frozenset(id(g.gi_frame) for g in kept.generators if g.gi_frame is not None)
        same = False
        with watch.repeating(phase, back):
            kept.without_gradients()
            try:
                with watch.quiet.handed_back(), none_outside(older, is_strict=is_strict):
                    work()
            except KeyboardInterrupt:
                kept.put_back()
                raise
            except Reached as reached:
                same = is_same() and _made_the_same(reached, frame, lead)
            except BaseException:  # it cannot be done twice
                pass
            finally:
                kept.put_back()
            if not (same and phase.found and is_conclusive(phase.found[0][1])):
                return None
            return watch.told.completed(phase.found[0][1])  # while its batch is at hand

    def _roots(self, frame: FrameType | None, lead: Lead | None) -> list[Any]:
        watch = self._watch
        roots: list[Any] = [*watch.progress.optimizers, *watch.rewind.buffers.live]
        while frame is not None:
            if kind_of_file(frame.f_code.co_filename) == USER:
                roots += [frame.f_globals, *frame.f_locals.values()]
            frame = frame.f_back
        return roots


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The program's own that called it, from the inside, as far as nobody else stands between."""
    while frame is not None and kind_of_file(frame.f_code.co_filename) in (OWN, LIBRARY):
        frame = frame.f_back
    while frame is not None and kind_of_file(frame.f_code.co_filename) == USER:
        yield frame
        frame = frame.f_back


def _arguments(lead: Lead, frame: FrameType) -> Mapping[str, Any] | None:
    if lead.carried:
        return None
    found = frame.f_locals
    given = {name: found[name] for name in lead.parameters if name in found}
    for name, by in lead.counted.items():
        if type(given.get(name)) is not int:
            return None
        given[name] -= by
    return given


def _callable(lead: Lead, frame: FrameType, arguments: Mapping[str, Any]) -> Callable[[], Any]:
    cells = tuple(CellType(frame.f_locals.get(name)) for name in lead.code.co_freevars)
    function = FunctionType(lead.code, frame.f_globals, lead.code.co_name, None, cells)
    missing = [name for name in lead.parameters if name not in arguments]
    given = {**arguments, **dict.fromkeys(missing)}
    return lambda: function(**given)


def _made_the_same(reached: BaseException, frame: FrameType | None, lead: Lead | None) -> bool:
    """Whether names hold the same tensors as they did in the program's own turn."""
    if frame is None or lead is None:
        return True
    trace = reached.__traceback__
    while trace is not None and trace.tb_frame.f_code is not lead.code:
        trace = trace.tb_next
    if trace is None:
        return False
    now, then = trace.tb_frame.f_locals, frame.f_locals
    for name in lead.made:
        one, other = now.get(name), then.get(name)
        if type(one) is not torch.Tensor or type(other) is not torch.Tensor:
            continue
        if not same_values(one.detach(), other.detach()):
            return False
    return True


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


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
