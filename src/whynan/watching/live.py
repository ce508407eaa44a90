"""The phase in which every operation is recorded as it happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.arrays.numpy_errors import places_of
from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.record.exceptions import complains
from whynan.record.harm import Harm
from whynan.seam.events import Decision
from whynan.seam.optimizers import learning_rate
from whynan.seam.reading import local_of
from whynan.seam.sites import capture
from whynan.seam.tensors import saved_tensors
from whynan.seam.training import Step
from whynan.watching.outside import place_of
from whynan.watching.phases import Phase
from whynan.watching.signs import (
    COMPUTED,
    Noted,
    exit_code,
    is_older,
    sign_of,
    signs_of,
    went_on,
)
from whynan.watching.told import Explained, How

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

SAME = 3  # bad losses of one origin: the next one has it, too
LIVE_CALLS = 8  # of a model without gradients, or backward passes without an optimizer


class Live(Phase):
    """Asks the recorder; goes quiet when there is nothing odd."""

    how: How = "live"

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._calls = 0
        self._begin = watch.recorder.tracer.next_index
        self._harmed = False  # this step
        self._again: deque[int] = deque(maxlen=SAME)  # operations that made the last losses bad
        self._error: BaseException | None = None  # that ended the program
        self._followed: Explained | Noted | None = (
            None  # what is known of the bad output it began with
        )

    def take_over(self, losses: list[float]) -> None:
        """The backward pass of this step was not recorded."""
        self.watch.recorder.losses.value = losses[-1] if losses else None

    def follow(self, module: Any, output: Any, proof: Explained | Noted | None) -> None:
        """An output that is known to be bad, of a call that was not recorded."""
        self._followed = proof
        self.watch.recorder.outputs.ends(module, output, None)
        self._calls = LIVE_CALLS

    # ---- training -----------------------------------------------------------------------

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        watch = self.watch
        signs = self._of_loss(watch.recorder.losses.before(roots, frame))
        watch.ledger.backward_begins(signs)
        watch.guard.note_loss(roots)
        if not watch.progress.uses_optimizer:
            watch.first.note_loss(roots if signs else (), went_on(signs, watch.since))

    def _of_loss(self, harms: list[Harm]) -> list[Sign]:
        """In a loop without an optimizer that goes on with bad ones, they are explained some times only."""
        since, again = self.watch.since, self._again
        if not harms or self.watch.progress.uses_optimizer:
            again.clear()
        elif since is not None and len(again) == SAME and len(set(again)) == 1:
            return [sign_of(harm, since.evidence) for harm in harms]
        signs = self._explained(harms)
        again.extend(s.proof.origin.index for s in signs[:1])
        return signs

    def backward_ends(self, roots: Any, given: Any) -> None:
        watch, progress = self.watch, self.watch.progress
        watch.ledger.backward_ends(spoilt=watch.recorder.losses.after())
        if not progress.uses_optimizer and not watch.quiet.local.depth:
            watch.guard.begin_step()
            progress.step = max(progress.step, watch.recorder.tracer.step)
            self._unit_is_over()
            if watch.phase is not self:
                progress.step += 1  # nobody sees the update that ends it

    def step_begins(self, step: Step) -> Decision:
        watch = self.watch
        gradients = watch.recorder.updates.before(step)
        self._note_losses()
        self._count(watch.ledger.step_begins(signs_of(gradients)))
        if self._harmed and watch.plan.policy == "skip":
            return self._leave_out()
        watch.recorder.updates.begin(step)
        return "go"

    def _note_losses(self) -> None:
        """They may do no harm, but what made them may be carried on into the next turn."""
        self.watch.since = went_on(self.watch.ledger.losses, self.watch.since)

    def _leave_out(self) -> Decision:
        self._harmed = False
        self.watch.drop()
        return "cancel"

    def step_left(self, step: Step) -> None:
        self.watch.recorder.updates.end()

    def step_ends(self, step: Step) -> None:
        self._look_after(step)
        self.watch.carried.note(step.frame)
        self.watch.step_is_over()

    def _look_after(self, step: Step) -> None:
        watch, recorder, progress = self.watch, self.watch.recorder, self.watch.progress
        recorder.updates.end()
        watch.guard.history.gradients(recorder.updates.magnitudes)
        rate, scale = learning_rate(step.optimizer), progress.scaling.scale
        watch.guard.history.row(progress.step, recorder.losses.value, rate, scale)
        self._count(watch.ledger.step_ends(signs_of(recorder.updates.after(step))))
        recorder.step_is_over()
        self._harmed = False

    def leaves_updated(self, spoilt: list[Harm]) -> None:
        watch, recorder, progress = self.watch, self.watch.recorder, self.watch.progress
        watch.guard.history.row(recorder.tracer.step, recorder.losses.value, None, None)
        self._count(watch.ledger.updated_by_hand(signs_of(spoilt)))
        progress.step = max(progress.step, recorder.tracer.step + 1)

    def average_spoilt(self, spoilt: list[Harm]) -> None:
        """What the program wrote or loaded as NaN marks what is not filled in yet; what it computed
        does not."""
        made = [s for s in self._explained(spoilt) if s.proof.origin_kind in COMPUTED]
        if made:
            self._count(self.watch.ledger.state_spoilt(made))

    def scale_collapsed(self, step: Step) -> None:
        watch, scaling = self.watch, self.watch.progress.scaling
        effect = (
            f"GradScaler skipped {scaling.skips} steps in a row; "
            f"the loss scale fell to {scaling.scale:g}"
        )
        scaling.skips = 0
        for sign in signs_of(watch.recorder.updates.scaled_away(step, effect)):
            self._count(watch.ledger.scale_collapsed(sign))

    def settle(self) -> None:
        watch = self.watch
        if not watch.progress.is_live() and not watch.plan.always_live:
            self._go_quiet()
        elif watch.plan.policy == "skip":
            watch.rewind.save_at_border()

    def fetch_begins(self) -> None:
        if self.watch.plan.policy == "skip":
            self.watch.rewind.save_at_fetch()

    def step_left_out(self) -> None:
        self.watch.rewind.step_left_out()

    # ---- models and operations --------------------------------------------------------------

    def model_called(self, module: Any) -> None:
        self._unit_is_over()

    def model_returned(self, module: Any, output: Any, frame: FrameType) -> None:
        self._unit_is_over()

    def _unit_is_over(self) -> None:
        watch, recorder = self.watch, self.watch.recorder
        self._calls += 1
        enough = self._calls >= LIVE_CALLS and not recorder.outputs.is_waiting
        if not (watch.progress.has_rested or watch.progress.uses_optimizer):
            made = recorder.tracer.next_index - self._begin
            enough &= made >= watch.plan.live_operations  # a small program ends before
        if enough and not watch.plan.stays_live:
            self._go_quiet()

    def operations_are_many(self) -> None:
        """A long program that has not begun to train, and may never: recording slows it down."""
        if not self.watch.plan.stays_live and not self.watch.progress.uses_optimizer:
            self._go_quiet()

    def compiled(self) -> None:
        self.watch.recorder.has_compiled = True
        if self.watch.plan.stays_live:
            self.watch.quiet.then(self.watch.recorder.run_eagerly)
        else:
            self._go_quiet()

    def profiling_begins(self) -> None:
        """A recorded operation would be two of its events."""
        if not self.watch.plan.stays_live:
            self._go_quiet()

    def _go_quiet(self) -> None:
        self.watch.go_quiet()
        self.watch.rewind.save()

    # ---- what the program gets out ------------------------------------------------------------

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        watch, checks, place = self.watch, self.watch.recorder.checks, place_of(frame)
        known = watch.recorder.tracer.entry_of(local_of(tensor)) is not None
        if known and checks.is_nonfinite(tensor):  # else torch reads what it is still making
            if watch.ledger.has_read(place):
                return
            first = watch.ledger.bad_since(place)
            if first is not None and first.is_explained:
                watch.ledger.read(place, first)
                return
            signs = self._explained(checks.bad("observed", [(how, tensor)], capture(frame)))
            if not signs:
                watch.guard.outside.meant.add(place)
            sign = replace(signs[0], places=places_of(frame)) if signs else None
            watch.ledger.read(place, sign)
        elif checks.shadows:
            wrong = self._explained(checks.wrong("observed", [(how, tensor)], capture(frame)))
            if wrong:
                watch.ledger.read(place, wrong[0])
        elif watch.ledger.has_read(place) or watch.ledger.follows:
            watch.ledger.read(place, None)

    def saved(self, obj: Any, frame: FrameType) -> None:
        named = [("saved tensor", t) for t in saved_tensors(obj)]
        signs = self._explained(self.watch.recorder.checks.bad("observed", named, capture(frame)))
        self.watch.ledger.saved(place_of(frame), signs[0] if signs else None)

    def output_returned(self, module: Any, bad: list[Harm]) -> None:
        """A service has no end to wait for: what it did not deal with is told when the next one comes."""
        watch, sign = self.watch, sign_of(bad[0]) if bad else None
        before = watch.ledger.model_returned(id(module), sign)
        if before is not None and self._followed is not None and watch.plan.policy == "warn":
            watch.tell(replace(before, proof=self._followed))

    def left_behind(self, names: Mapping[str, Any]) -> None:
        if not self.watch.told.evidence:
            self.watch.ledger.left_behind(signs_of(self.watch.recorder.results(names)))

    # ---- harm -----------------------------------------------------------------------------

    def _explained(self, harms: list[Harm]) -> list[Sign]:
        """At once, for the values will be gone; without those that the program meant."""
        found = [(harm, self.watch.recorder.explain(harm)) for harm in harms]
        return [sign_of(harm, evidence) for harm, evidence in found if evidence is not None]

    def _count(self, counted: list[Sign]) -> None:
        for sign in counted if not self.watch.told.passes_over(counted) else ():
            proof = sign.proof
            if not isinstance(proof, (Harm, Evidence)):  # the guard saw it, before the recording
                self.watch.tell(sign)
                continue
            evidence = self.watch.recorder.explain(proof) if isinstance(proof, Harm) else proof
            if evidence is not None:
                self._found(sign, evidence)

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        watch, told = self.watch, self.watch.told
        if told.knows(evidence):
            self._harmed = True
            if watch.plan.policy == "warn":
                told.later.add(sign.step)
        elif is_older(evidence) and self._has_not_seen_all():
            self._tell_older(sign)
        else:
            self._harmed = True
            told.found(told.completed(evidence), self.how)

    def _has_not_seen_all(self) -> bool:
        return self.watch.progress.has_rested or self.watch.recorder.updates.has_missed()

    def _tell_older(self, sign: Sign) -> None:
        """It was there before the recording began: perhaps as the output that it began with."""
        waits = sign.sink == "exception" or self.watch.recorder.outputs.is_waiting
        if self._followed is not None and waits:
            self.watch.tell(replace(sign, proof=self._followed))
        elif self._error is not None:
            self.watch.tell_exception(sign, self._error)
        elif self.watch.since is not None and self.watch.carried.is_bad():
            self.watch.tell(replace(sign, proof=self.watch.since))
        else:
            self.watch.tell(sign)

    # ---- the end ------------------------------------------------------------------------------

    def ends(self, error: BaseException | None) -> None:
        watch, recorder = self.watch, self.watch.recorder
        code, self._error = exit_code(error), error
        harm = None if error is None or watch.told.evidence else recorder.raised(error)
        if code is not None and harm is None:
            left = [] if code else recorder.losses.left_gradients()
            watch.ledger.left_behind(signs_of(left))
            self._count(watch.ledger.exits(code))
        elif error is not None and not watch.told.evidence:
            sign = None if harm is None else sign_of(harm)
            self._count(watch.ledger.raised(sign, complains(error)))
