"""The phase in which the recorder is off: a cheap look at each step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whynan.arrays.numpy_errors import places_of
from whynan.harm.ledger import Sign
from whynan.seam.events import Decision
from whynan.seam.optimizers import Optimizer
from whynan.seam.sites import capture
from whynan.seam.tensors import bad_values, saved_tensors
from whynan.seam.training import Step
from whynan.watching.body import Body
from whynan.watching.first_seen import is_bad
from whynan.watching.guard import NOTHING
from whynan.watching.outside import place_of
from whynan.watching.phases import Phase
from whynan.watching.signs import COMPUTED, LOSS_SCALE, Meant, complaint, exit_code, explained
from whynan.watching.told import Explained

if TYPE_CHECKING:
    from whynan.watching.watch import Watch


class Guarding(Phase):
    """Looks, and asks for a recording where that is not enough."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._bad_outputs: dict[int, int] = {}
        self._early: tuple[int, Explained] | None = None  # the number of a loss of this step
        self._caller: FrameType | None = None  # of a backward pass, while it lasts

    # ---- training -----------------------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """After a long setup, training begins: its first steps are recorded."""
        if self.watch.progress.has_rested and not self.watch.progress.step:
            self.settle()

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        self.watch.guard.note_loss(roots)
        self._caller = frame
        self._note_turn(frame)

    def _note_turn(self, frame: FrameType) -> None:
        """Of a loop without an optimizer, in case that it must be looked into."""
        if not self.watch.progress.uses_optimizer and self.watch.progress.traces:
            self.watch.carried.note_call(frame, of_model=False)

    def backward_ends(self, roots: Any, given: Any) -> None:
        """Without an optimizer, a step is a backward pass."""
        watch, guard, progress = self.watch, self.watch.guard, self.watch.progress
        caller, self._caller = self._caller, None
        guard.note_gradients(progress.optimizers)
        if progress.uses_optimizer and not watch.quiet.local.depth and guard.passes > 1:
            self._look_early(caller)
        if progress.uses_optimizer or watch.quiet.local.depth:
            return
        self._look_at_leaves()
        losses, spoilt = guard.bad_losses(progress.step, None), guard.outside.spoils_leaves(roots)
        if losses or spoilt or is_bad(given):
            proof = watch.first.of_backward(caller, list(guard.local.values))
            watch.first.note_loss(roots if losses else (), proof)
        elif watch.since is not None:
            watch.first.finite_loss()
        if losses or spoilt:
            guard.outside.remember_leaves(proof)
            watch.ledger.backward_begins([replace(sign, proof=proof) for sign in losses])
            watch.ledger.backward_ends(spoilt=spoilt)
        progress.step = max(progress.step + 1, watch.recorder.tracer.step)
        guard.begin_step()
        watch.rewind.save_at_border()

    def _look_early(self, caller: FrameType | None) -> None:
        """Gradients are accumulated: at the step, the turn of a bad loss is over."""
        watch, values = self.watch, self.watch.guard.local.values
        if values and values[-1] - values[-1] != 0:
            proof = watch.first.of_backward(caller, values[-1:])
            self._early = None if proof is None else (len(values), proof)
        watch.calls.passed = watch.rewind.randomness.save()

    def _seen_early(self) -> Explained | None:
        """Of a loss that this step is made with."""
        number, proof = self._early or (0, None)
        values = self.watch.guard.local.values[number - 1 : number] if number else []
        return proof if values and values[0] - values[0] != 0 else None

    def _look_at_leaves(self, *, at_end: bool = False) -> None:
        """At the end, nothing that the program said before is forgotten because of it."""
        spoilt = self.watch.guard.outside.spoilt_leaf(self.watch.progress.step)
        if spoilt or (spoilt is not None and not at_end):
            self._harm(self.watch.ledger.updated_by_hand(spoilt), None)

    def step_begins(self, step: Step) -> Decision:
        watch, guard, at = self.watch, self.watch.guard, self.watch.progress.step
        if watch.progress.waits:
            return "go"
        look = guard.before(step, at)
        self._look_back()
        if watch.told.passes_over():
            return "go"
        if look is NOTHING and not watch.ledger.waits:
            watch.since = None
            return "go"
        watch.ledger.backward_begins([] if watch.progress.scaling.in_use else look.losses)
        counted = watch.ledger.step_begins(look.gradients, look.norms)
        counted = counted or watch.ledger.state_spoilt(look.buffers)
        if counted:
            watch.sample(step)
            return self._harm(counted, step)
        self._note_loss(step, look.losses)
        if look.is_hidden:
            watch.progress.suspect()
        if look.is_large and watch.progress.may_go_live:
            live = watch.go_live()
            live.take_over(guard.local.values)
            watch.quiet.then(partial(watch.quiet, live.step_begins, step))
        return "go"

    def _note_loss(self, step: Step, losses: list[Sign]) -> None:
        """A bad loss with finite gradients is no harm; but if what made it is carried on into the next
        turn, only this one shows where it began."""
        watch = self.watch
        before, watch.since = watch.since, None
        if not losses or step.frame is None or not watch.spending.may_go_on():
            return
        body = Body(watch, is_certain=False)
        with watch.spending.counted():
            found = body.of_backward(step.frame, list(watch.guard.local.values))
        if found is not None:
            watch.since = Explained(found, "body")
        elif body.came_in:
            watch.since = before

    def _look_back(self) -> None:
        """On a device: what became of the update before this one."""
        spoilt = self.watch.guard.late_signs()
        if spoilt:
            self._harm(self.watch.ledger.step_ends(spoilt), None)

    def step_ends(self, step: Step) -> None:
        watch, at = self.watch, self.watch.progress.step
        if not watch.progress.waits:
            watch.guard.note_row(step, at, watch.progress.scaling.scale)
            state = watch.guard.after(step, at, watch.recorder.slicer.is_written)
            if watch.plan.together:  # ranks decide about each step when it ends
                state = state or watch.guard.late_signs()
            counted = watch.ledger.step_ends(state)
            if counted:
                self._harm(counted, None)
            watch.carried.note(step.frame)
        self._early = None
        watch.step_is_over()

    def step_left_out(self) -> None:
        self.watch.rewind.step_left_out()

    def scale_collapsed(self, step: Step) -> None:
        at, frames = self.watch.progress.step, capture(step.frame)
        sign = Sign(sink="gradient", subject=LOSS_SCALE, step=at, proof=frames)
        self._harm(self.watch.ledger.scale_collapsed(sign), None)

    def settle(self) -> None:
        if self.watch.progress.is_live():
            self._look_back()
            self.watch.go_live()
        else:
            self.watch.rewind.save_at_border()

    def fetch_begins(self) -> None:
        self.watch.rewind.save_at_fetch()

    # ---- harm -----------------------------------------------------------------------------

    def _harm(self, counted: list[Sign], step: Step | None) -> Decision:
        watch, told, policy = self.watch, self.watch.told, self.watch.plan.policy
        if not counted or told.passes_over(counted):
            return "go"
        sign = counted[0]
        if told.has_begun and (policy == "warn" or sign.sink == "parameter"):
            if policy == "warn":
                told.later.add(sign.step)
            return "go"  # said already, and a parameter is too late to skip
        if watch.plan.together:
            told.teller.unexplained(sign)
            return "go"
        try:
            inside = step is None and watch.quiet.local.depth  # the update cannot be left out
            can_rewind = not inside and watch.can_rewind(sign)
            alone = len(watch.progress.stepping) <= 1  # else the loop goes on to another's update
            evidence, early, again = None, None, can_rewind and alone and watch.rewind.is_certain()
            if step is not None and not (again and not Body(watch).moves_on(step)):
                body = Body(watch)
                evidence = body.of_step(step)
                if evidence is None and body.came_in and watch.carried.is_bad():
                    early = watch.since
            early = early or self._seen_early() if evidence is None else None
            if evidence is None and early is None and can_rewind:
                watch.replay(sign)
                return "cancel"
        except Exception as error:  # the harm is told all the same
            watch.rewind.stop()
            watch.recorder_failed(error)
            evidence = early = None
        if evidence is not None:
            told.found(evidence, "body")
        else:
            watch.tell(sign if early is None else replace(sign, proof=early))
        if policy != "skip" or step is None:
            return "go"
        watch.drop()
        return "cancel"

    # ---- what the program gets out ------------------------------------------------------------

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        watch, is_written = self.watch, self.watch.recorder.slicer.is_written
        self._note_turn(frame)
        sign = watch.guard.outside.read(tensor, value, frame, watch.progress.step, is_written)
        if sign is None:
            if watch.ledger.follows:
                watch.ledger.finite_read(place_of(frame))
            return
        place = place_of(frame)
        first = watch.ledger.bad_since(place)
        if first is not None and first.is_explained:
            watch.ledger.read(place, first)
            return
        proof = watch.first.of_read(tensor, frame, is_first=first is None)
        if isinstance(proof, Meant):
            watch.guard.outside.meant.add(place)
        else:
            known = replace(sign, proof=proof or sign.proof, places=places_of(frame))
            watch.ledger.read(place, known)

    def saved(self, obj: Any, frame: FrameType) -> None:
        watch = self.watch
        sign = watch.guard.outside.saved(obj, frame, watch.progress.step)
        if sign is not None:
            bad = next(t for t in saved_tensors(obj) if bad_values(t) is not None)
            sign = replace(sign, proof=Body(watch).note_read(bad, frame) or sign.proof)
        watch.ledger.saved(place_of(frame), sign)

    def model_begins(self, args: Any, kwargs: Any, frame: FrameType) -> None:
        if self.watch.progress.traces:
            self.watch.calls.begins(args, kwargs)
            if not self.watch.progress.uses_optimizer:  # else its steps tell
                self.watch.carried.note_call(frame)

    def model_returned(self, module: Any, output: Any, frame: FrameType) -> None:
        """What the program does next with a bad output tells whether it deals with it: record that.
        Of a module whose outputs it deals with, again and again, only some are followed."""
        watch = self.watch
        sign, proof = watch.guard.outside.returned(module, output, watch.progress.step), None
        if sign is None:
            watch.calls.is_finite(module)
        else:
            first = not watch.ledger.has_returned(id(module))
            proof = watch.calls.note(module, output, frame, is_first=first)
            sign = replace(sign, proof=proof)
        watch.ledger.model_returned(id(module), sign)
        if sign is None or not watch.progress.may_go_live:
            return
        times = self._bad_outputs[id(module)] = self._bad_outputs.get(id(module), 0) + 1
        if times & (times - 1) == 0 and not watch.told.has_begun:
            watch.go_live().follow(module, output, proof)

    def cast_begins(self, module: Any) -> None:
        """A weight that does not fit becomes infinite: record what is made of it."""
        if self.watch.progress.may_go_live:
            self.watch.go_live()

    def compiled(self) -> None:
        """A compiler would take the recorder's own work down, if it still rests beneath a mode that the
        program has left since."""
        self.watch.quiet.then(self.watch.recorder.leave)
        if self.watch.plan.armed_from is None:
            self.watch.recorder.has_compiled = True

    # ---- the end ------------------------------------------------------------------------------

    def ends(self, error: BaseException | None) -> None:
        watch, at = self.watch, self.watch.progress.step
        if watch.progress.waits:
            return
        self._look_back()
        self._look_at_leaves(at_end=True)
        losses = watch.guard.bad_losses(at, None)
        if losses and not watch.progress.scaling.in_use:  # that nobody stepped with
            watch.ledger.backward_begins(losses)
            state, spoilt = watch.guard.left_bad(list(watch.progress.optimizers), at)
            watch.ledger.backward_ends(spoilt=spoilt)
            for sign in watch.ledger.state_spoilt(state) if state else ():
                watch.told.unexplained(sign)
        code = exit_code(error)
        complained = complaint(error, at) if error is not None else None
        if complained is not None or (code is None and error is not None):
            counted = watch.ledger.raised(complained, complained is not None)
        else:
            counted = watch.ledger.exits(code or 0)
            if not code:  # whether an infinity that nobody saw made was meant cannot be told
                counted = [s for s in map(_seen_made, counted) if s is not None]
        for sign in counted[:1]:
            if error is not None:
                watch.tell_exception(sign, error)
            else:
                watch.tell(sign)


def _seen_made(sign: Sign) -> Sign | None:
    """Of an infinity, with the operation of a repeat that made it."""
    if sign.sink == "loss" or (sign.value is not None and sign.value != sign.value):
        return sign
    proof = explained(sign.proof)
    computed = isinstance(proof, Explained) and proof.evidence.origin_kind in COMPUTED
    return replace(sign, proof=proof) if computed else None
