"""The phase in which the step that failed is done once more, recorded."""

from __future__ import annotations

import math
from types import FrameType
from typing import TYPE_CHECKING, Any

from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.seam.events import Decision
from whynan.seam.training import Step
from whynan.watching.held_back import HeldBack
from whynan.watching.live import Live
from whynan.watching.signs import LOSS_SCALE, is_conclusive

if TYPE_CHECKING:
    from whynan.watching.watch import Watch


class Replaying(Live):
    """What it shows is accepted only if it is the same step."""

    how = "rewind"

    def __init__(self, watch: Watch, sign: Sign | None) -> None:
        super().__init__(watch)
        self._sign = sign
        self._expected = list(watch.guard.local.values)  # of the losses
        self._explains = False
        self._printed = HeldBack()
        self._first_look: Evidence | None = None  # of a replay that may have been another step
        # Its batches are given again; or one step is as good as another, as all were skipped.
        lasting = sign is not None and sign.subject == LOSS_SCALE
        self._is_same = watch.rewind.batches.ever or lasting

    def settle(self) -> None: ...
    def fetch_begins(self) -> None:
        """From here on the loop says again what it said of this step."""
        self._printed.begin()

    def let_print(self) -> None:
        """What waits, and what comes."""
        self._printed.end(shown=True)

    def step_left_out(self) -> None: ...
    def _unit_is_over(self) -> None: ...
    def operations_are_many(self) -> None: ...

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        super().backward_begins(roots, frame)
        now = self.watch.guard.loss_values()
        for value, then in zip(now, self._expected, strict=False):
            if value != then and not (value != value and then != then):
                self._give_up()
                return
            self._is_same |= math.isfinite(value)

    def step_begins(self, step: Step) -> Decision:
        decision = super().step_begins(step)
        if self.watch.phase is not self:
            return "go"  # given up
        if not self._explains:
            return decision  # the update itself may show it
        return self._is_over() if self._first_look is None else self._once_more()

    def step_ends(self, step: Step) -> None:
        self._look_after(step)
        if self.watch.phase is self:
            if self._explains and self._first_look is None:
                self._is_over()
            else:
                self._give_up()
        self.watch.step_is_over()

    def _once_more(self) -> Decision:
        watch = self.watch
        watch.recorder.updates.end()
        self._explains = False
        watch.forget_step()
        watch.rewind.back()
        return "cancel"

    def _leave_out(self) -> Decision:
        return "go"  # `_is_over` decides

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        plan = self.watch.plan
        alone = not plan.together and plan.policy != "skip"
        if alone and not is_conclusive(evidence):
            self._give_up()
        elif not alone or self._is_same or self._is_seen_again(evidence):
            self._explains = True
            self._printed.end(shown=False)  # the program may be left now
            super()._found(sign, evidence)

    def _is_seen_again(self, evidence: Evidence) -> bool:
        """A loop that takes its batches by hand goes on to the next one, which may be bad, too.
        Only a loop that does the same twice does what it did before."""
        if self._first_look is None or self._explains:  # more of the same replay
            self._first_look = self._first_look or evidence
            self._explains = True
            return False
        first, self._first_look = self._first_look, None
        if _facts(first) != _facts(evidence):
            self._give_up()
            return False
        return True

    # ---- its end ----------------------------------------------------------------------------

    def _is_over(self) -> Decision:
        self._guard_again()
        if self.watch.plan.policy != "skip":
            return "go"
        self.watch.drop()
        return "cancel"

    def _give_up(self) -> None:
        """The replay was another step, or showed nothing: this process cannot tell."""
        watch = self.watch
        self._guard_again()
        if watch.plan.policy == "skip":
            watch.told.skipped.append(watch.progress.step)
        if self._sign is not None:
            watch.told.unexplained(self._sign)

    def _guard_again(self) -> None:
        self._printed.end(shown=not self._explains)
        self.watch.recorder.updates.end()
        self.watch.go_quiet()
        self.watch.rewind.stop()

    def ends(self, error: BaseException | None) -> None:
        self.let_print()
        if not self._explains:
            self._give_up()

    def broke(self) -> None:
        """Nothing is repeated because of it; what the guard saw before is told."""
        self.let_print()
        self.watch.rewind.stop()
        if self._sign is not None and not self.watch.plan.together:
            self.watch.told.unexplained(self._sign)


def _facts(evidence: Evidence) -> str:
    """What two looks at the same step have in common, as text: NaN is NaN there."""
    origin = evidence.origin
    return repr((origin.op, origin.site, [(o.index, o.value, o.stats) for o in origin.inputs]))
