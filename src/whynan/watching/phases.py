"""The phases of a watched program, and how one follows another.

from        to          when
(start)     Live        the plan has steps recorded as they happen
(start)     Guarding    it has not
Live        Guarding    a step ends and the next one need not be recorded; too many operations
                        without a step; a function is compiled; the recorder failed
Guarding    Live        the next step is to be recorded; gradients so large that the update may
                        overflow; a model returned something bad; a model is made narrower
Guarding    Replaying   harm before an update that can be repeated
Replaying   Guarding    the step is explained (or is another one, or shows nothing); the recorder
                        failed
Guarding    Repeating   harm before an update that the loop cannot be asked to make again; a model
                        returned something bad; an exception; the last word of the program
Repeating   Guarding    the statements are executed, or left where they cannot be
any         Done        the program is over

`Watch` makes each of these changes in one method of its own: `go_live`, `go_quiet`, `replay`,
`repeating`, `recorder_failed`, `stop`. A phase asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.arrays.reach import keeps
from whynan.record.harm import Harm
from whynan.seam.events import Decision
from whynan.seam.optimizers import Optimizer
from whynan.seam.sites import capture
from whynan.seam.training import Step
from whynan.watching.outside import place_at, place_of

if TYPE_CHECKING:
    from whynan.watching.watch import Watch


class Phase:
    """What most phases make of what happens: nothing."""

    is_real = True  # not a repeat of what the program has done

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    # training
    def optimizer_made(self, optimizer: Optimizer) -> None: ...
    def backward_begins(self, roots: Any, frame: FrameType) -> None: ...
    def backward_ends(self, roots: Any, given: Any) -> None: ...
    def scale_collapsed(self, step: Step) -> None: ...
    def step_left_out(self) -> None: ...
    def step_begins(self, step: Step) -> Decision:
        return "go"

    def step_left(self, step: Step) -> None: ...
    def step_ends(self, step: Step) -> None: ...
    def settle(self) -> None:
        """Between two steps: record the next one, or not."""

    def fetch_begins(self) -> None: ...
    def leaves_updated(self, spoilt: list[Harm]) -> None: ...
    def average_spoilt(self, spoilt: list[Harm]) -> None: ...

    # models
    def model_called(self, module: Any) -> None: ...
    def model_begins(self, args: Any, kwargs: Any, frame: FrameType) -> None: ...
    def model_returned(self, module: Any, output: Any, frame: FrameType) -> None: ...
    def output_returned(self, module: Any, bad: list[Harm]) -> None: ...
    def cast_begins(self, module: Any) -> None: ...
    def compiled(self) -> None: ...
    def profiling_begins(self) -> None: ...
    def operations_are_many(self) -> None: ...

    # what the program gets out
    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None: ...
    def saved(self, obj: Any, frame: FrameType) -> None: ...
    def array_saved(self, bad: bool, frame: FrameType) -> None:
        self.watch.ledger.array_saved(place_of(frame), bad=bad)

    def text_shown(self, text: str, frame: FrameType) -> None:
        """The user's own words; what a library prints of its own accord is not."""
        frames = capture(frame)
        if frames is not None and frames.user_code is None:
            place = place_at(frames.code, frames.lasti)
            self.watch.ledger.text_shown(place, text, lambda sign: keeps(sign.places or (), frame))

    # the end
    def left_behind(self, names: Mapping[str, Any]) -> None: ...
    def ends(self, error: BaseException | None) -> None: ...
    def broke(self) -> None:
        """The recorder failed, and the guard has taken over."""


class Done(Phase):
    """Nothing counts any more."""
