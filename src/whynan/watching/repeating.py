"""The phase in which some of the program is executed once more, recorded, in place.

`body.py` repeats the statements that led somewhere, `calling.py` the call of a model. What they change is
put back (`kept.py`), and they are left before they do something outside (`seam/effects.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType
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
from whynan.seam.sites import capture
from whynan.seam.tensors import bad_values, saved_tensors, tensors_in
from whynan.seam.training import Step
from whynan.watching.kept import Kept, same_values
from whynan.watching.live import Live
from whynan.watching.signs import Meant
from whynan.watching.told import How

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

AT_FIRST = 3  # repeats before harm is certain, in any case
MOST = 0.1  # of the program's time for the others
Place = tuple[str, Any]  # file, and lines and columns in it
MORE_BACKWARD = 8  # passes than the step had: another optimizer's, but not a whole epoch


class Reached(BaseException):
    """The repeat has come to where harm was seen."""


class Repeating(Live):
    """Hears what the statements do; nothing of it counts, nobody is told."""

    how: How = "body"
    is_real = False

    def __init__(self, watch: Watch, optimizer: Optimizer | None, losses: list[float]) -> None:
        super().__init__(watch)
        self.found: list[Evidence] = []
        self.left_out = 0  # updates that are made already
        self.code: CodeType | None = None  # of the statements
        self.before_update: set[str] = set()  # names that had a value when one was left out
        self._optimizer = optimizer
        self._losses = losses
        self._passes = 0
        self._thread = threading.get_ident()

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
        if self.is_here():
            raise Outside

    def is_here(self) -> bool:
        """Not in another thread, where the program goes on meanwhile."""
        return threading.get_ident() == self._thread

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        self._passes += 1
        if self._passes > len(self._losses) + MORE_BACKWARD:
            raise Outside  # it goes through more than one step
        super().backward_begins(roots, frame)

    def step_begins(self, step: Step) -> Decision:
        watch = self.watch
        if step.optimizer is not self._optimizer or not self._is_the_same():
            self.left_out += 1
            self._note_names(step.frame)
            watch.forget_step()
            return "cancel"
        super().step_begins(step)
        raise Reached

    def _note_names(self, frame: FrameType | None) -> None:
        """What was computed before an update that is made already is another value now."""
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        if frame is not None:
            self.before_update.update(frame.f_locals)

    def explained_of(self, named: list[tuple[str, torch.Tensor]]) -> list[Evidence]:
        signs = self._explained(self.watch.recorder.checks.bad("observed", named, None))
        return [s.proof for s in signs]

    def _is_the_same(self) -> bool:
        now = self.watch.guard.loss_values()
        return len(now) == len(self._losses) and all(map(_equal, now, self._losses))

    def _leave_out(self) -> Decision:
        return "go"

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        self._harmed = True
        self.found.append(evidence)


class ToBackward(Repeating):
    """To the same backward pass."""

    def backward_ends(self, roots: Any, given: Any) -> None:
        watch = self.watch
        if not self._is_the_same():
            return
        recorder = watch.recorder
        recorder.losses.after()
        signs = [s for s in watch.ledger.losses if not s.wrong]
        signs = signs or self._explained(recorder.losses.left_gradients())
        signs = signs or self._explained(recorder.losses.returned(given))
        self.found = [s.proof for s in signs[:1]]
        raise Reached


class ToRead(Repeating):
    """To the same value, taken out at the same place."""

    def __init__(self, watch: Watch, then: torch.Tensor, place: Place, meant: list[Meant]) -> None:
        super().__init__(watch, None, [])
        self._then, self._place, self._meant = then, place, meant

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        if self.is_here() and self._is_at(frame):
            self._look(tensor, how, frame)

    def saved(self, obj: Any, frame: FrameType) -> None:
        if self.is_here() and self._is_at(frame):
            for tensor in saved_tensors(obj):
                if bad_values(tensor) is not None:
                    self._look(tensor, "saved tensor", frame)
        super().saved(obj, frame)

    def _is_at(self, frame: FrameType) -> bool:
        return position(frame.f_code, frame.f_lasti) == self._place

    def _look(self, tensor: torch.Tensor, how: str, frame: FrameType) -> None:
        checks = self.watch.recorder.checks
        if not same_values(tensor.detach(), self._then):
            return
        signs = self._explained(checks.bad("observed", [(how, tensor)], capture(frame)))
        self.found = [s.proof for s in signs[:1]]
        if not signs:
            self._meant.append(Meant())
        raise Reached


class ToCall(Repeating):
    """To the same output of the same model."""

    def __init__(self, watch: Watch, module: Any, then: Any) -> None:
        super().__init__(watch, None, [])
        self._module, self._then = module, then

    def model_returned(self, module: Any, output: Any, frame: FrameType) -> None:
        recorder = self.watch.recorder
        if not self.is_here() or module is not self._module or not same_outputs(output, self._then):
            return
        signs = self._explained(recorder.outputs.ends(module, output, capture(frame)))
        self.found = [s.proof for s in signs[:1]]
        raise Reached


def same_outputs(one: Any, other: Any) -> bool:
    ours, theirs = tensors_in(one), tensors_in(other)
    return len(ours) == len(theirs) and all(
        same_values(a.detach(), b.detach()) for a, b in zip(ours, theirs, strict=True)
    )


def position(code: CodeType, lasti: int) -> Place:
    """Of an instruction, in whichever compilation of the source."""
    return code.co_filename, list(code.co_positions())[lasti // 2]


def _equal(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


class Spending:
    """How much of the program's time went into repeats that may have been for nothing."""

    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        self._spent_s = 0.0
        self._times = 0

    def may_go_on(self) -> bool:
        ran_s = time.monotonic() - self._begin_s
        return self._times < AT_FIRST or self._spent_s < MOST * ran_s

    @contextmanager
    def counted(self) -> Iterator[None]:
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self._times += 1
            self._spent_s += time.monotonic() - begin_s


def can_repeat(watch: Watch, *, apart: bool = False) -> bool:
    """Whether anything may be executed once more, here and now; `apart` from the ranks of a job."""
    return (
        watch.progress.traces
        and not watch.told.has_begun
        and not dispatch_modes()
        and default_device.is_all(function_modes())
        and can_be_seen()
        and (apart or not _is_distributed())
    )


@contextmanager
def once_more(
    phase: Repeating, kept: Kept, start: Callable[[], None], end_s: float, *, is_strict: bool
) -> Iterator[Callable[[Callable[[], Any]], tuple[Any, BaseException | None]]]:
    """Gives what executes some work, from the states that `start` puts there, until `end_s`; what that gave
    or raised may be looked at inside of the block, at whose end everything is as it was."""
    watch, local = phase.watch, phase.watch.quiet.local
    older = frozenset(id(g.gi_frame) for g in kept.generators if g.gi_frame is not None)

    ends: list[BaseException] = []

    def is_own() -> int:
        return local.own

    def execute(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            with watch.quiet.handed_back(), none_outside(older, end_s, is_own, is_strict=is_strict):
                return work(), None
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            ends.append(raised)
            return None, raised

    with watch.repeating(phase, partial(kept.begin, start)):
        try:
            yield execute
        finally:
            kept.put_back()
            kept.let_go()
            for raised in ends:
                raised.__traceback__ = None  # it holds the frames, and they it


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
