"""The phases of a watched program, and what each makes of what happens.

from        to          when
(start)     Live        operations are recorded from the start, or from an armed step on
(start)     Guarding    the plan only guards, or is armed for a later step
Live        Guarding    a step ends and the next one need not be recorded; too many operations
                        without a step; a function is compiled
Guarding    Live        the next step is to be recorded; gradients so large that the update may
                        overflow; a model returned something bad; a model is made narrower
Guarding    Replaying   harm before an update that can be repeated
Replaying   Guarding    the step is explained (or is another one, or shows nothing)
any         Done        the program is over
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import torch

from whynan.harm.ledger import Sign
from whynan.model import Evidence
from whynan.record.exceptions import complains, frames_of
from whynan.record.freeze import FROM_LOADER
from whynan.record.slicing import Harm
from whynan.seam.events import Decision
from whynan.seam.optimizers import learning_rate
from whynan.seam.reading import local_of
from whynan.seam.sites import Frames, capture
from whynan.seam.tensors import saved_tensors
from whynan.seam.training import Step
from whynan.watching.guard import bad_read

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

LIVE_CALLS = 8  # of a model without gradients, or backward passes without an optimizer
LOSS_SCALE = "loss scale"


class Phase:
    """What most phases make of what happens: nothing."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def optimizer_made(self) -> None: ...
    def backward_begins(self, roots: Any, frame: FrameType) -> None: ...
    def backward_ends(self, roots: Any) -> None: ...
    def scale_collapsed(self, step: Step) -> None: ...
    def step_left_out(self) -> None: ...
    def step_begins(self, step: Step) -> Decision:
        return "go"

    def step_left(self) -> None: ...
    def step_ends(self, step: Step) -> None: ...
    def settle(self) -> None: ...
    def fetch_begins(self) -> None: ...
    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None: ...
    def saved(self, obj: Any, frame: FrameType) -> None: ...
    def array_saved(self, bad: bool, frame: FrameType) -> None:
        self.watch.ledger.array_saved((frame.f_code, frame.f_lasti), bad=bad)

    def unit_is_over(self) -> None: ...
    def model_returned(self, module: Any, output: Any) -> None: ...
    def cast_begins(self) -> None: ...
    def cast_ends(self) -> None: ...
    def compiled(self) -> None: ...
    def leaves_updated(self, spoilt: list[Harm]) -> None: ...
    def output_returned(self, module: Any, bad: list[Harm]) -> None: ...
    def operations_are_many(self) -> None: ...
    def left_behind(self, names: Mapping[str, Any]) -> None: ...
    def ends(self, error: BaseException | None) -> None: ...

    def broke(self) -> None:
        """The recorder failed, and the guard has taken over."""

    def text_shown(self, text: str, frame: FrameType) -> None:
        """The user's own words; what a library prints of its own accord is not."""
        frames = capture(frame)
        if frames is not None and frames.user_code is None:
            self.watch.ledger.text_shown((frames.code, frames.lasti), text)


class Done(Phase):
    """Nothing counts any more."""


class Guarding(Phase):
    """The recorder is off; a cheap look at each step."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._bad_outputs: dict[int, int] = {}

    @property
    def _waits(self) -> bool:
        """For the step that another run is known to fail at."""
        return self.watch.plan.armed_from is not None and self.watch.traces

    # ---- training -----------------------------------------------------------------------

    def optimizer_made(self) -> None:
        """After a long setup, training begins: its first steps are recorded."""
        if self.watch.has_rested and not self.watch.step:
            self.settle()

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        self.watch.guard.note_loss(roots)

    def backward_ends(self, roots: Any) -> None:
        """Without an optimizer, a step is a backward pass."""
        watch, guard = self.watch, self.watch.guard
        guard.note_gradients(watch.optimizers)
        if watch.uses_optimizer or watch.quiet.local.depth:
            return
        self._look_at_leaves()
        losses = guard.bad_losses(watch.step, None)
        if losses:
            watch.ledger.backward_begins(losses)
            watch.ledger.backward_ends(spoilt=guard.remember_leaves(roots))
        watch.step = max(watch.step + 1, watch.recorder.tracer.step)
        guard.begin_step()
        self.unit_is_over()

    def _look_at_leaves(self) -> None:
        spoilt = self.watch.guard.spoilt_leaf(self.watch.step)
        if spoilt is not None:
            self._harm(self.watch.ledger.updated_by_hand(spoilt), None)

    def step_begins(self, step: Step) -> Decision:
        watch = self.watch
        if self._waits:
            return "go"
        look = watch.guard.before(step, watch.step)
        losses = watch.guard.bad_losses(watch.step, capture(step.frame))
        watch.ledger.backward_begins([] if watch.scaling.in_use else losses)
        counted = watch.ledger.step_begins(look.gradients, look.norms)
        counted = counted or watch.ledger.state_spoilt(look.buffers)
        if counted:
            watch.sample(step)
            return self._harm(counted, step)
        if look.is_hidden:
            watch.suspect()
        if look.is_large and watch.traces and not watch.recorder.has_compiled:
            live = self._go_live()
            live.take_over(watch.guard.local.values)
            watch.quiet.then(lambda: watch.quiet(live.step_begins, step))
        return "go"

    def step_ends(self, step: Step) -> None:
        watch = self.watch
        if not self._waits:
            watch.guard.note_row(step, watch.step, watch.scaling.scale)
            state = watch.guard.after(step, watch.step, watch.recorder.slicer.is_written)
            self._harm(watch.ledger.step_ends(state), None)
        watch.step_is_over()

    def step_left_out(self) -> None:
        """The scaler skipped this step: the next one begins with batches of its own."""
        self.watch.rewind.batches.begin_step()
        if not self.watch.rewind.batches.ever:
            self.watch.rewind.save()

    def scale_collapsed(self, step: Step) -> None:
        sign = Sign(
            sink="gradient", subject=LOSS_SCALE, step=self.watch.step, proof=capture(step.frame)
        )
        self._harm(self.watch.ledger.scale_collapsed(sign), None)

    def settle(self) -> None:
        """At the border of two steps: record the next one, or not."""
        if self.watch.is_live(self.watch.step):
            self._go_live()
        elif not self.watch.rewind.batches.ever:
            self.watch.rewind.save()

    def fetch_begins(self) -> None:
        if not self.watch.rewind.batches.given:
            self.watch.rewind.save()  # after all that follows an update: averages, evaluation

    def _go_live(self) -> Live:
        watch = self.watch
        live = watch.phase = Live(watch)
        watch.recorder.resume(watch.step, uses_optimizer=watch.uses_optimizer)
        return live

    # ---- harm -----------------------------------------------------------------------------

    def _harm(self, counted: list[Sign], step: Step | None) -> Decision:
        watch = self.watch
        if not counted:
            return "go"
        sign = counted[0]
        if watch.has_told and watch.plan.policy == "warn":
            watch.later += 1
            return "go"
        if sign.sink == "parameter" and watch.has_told:
            return "go"  # too late to skip, and said already
        if watch.ranks is not None:
            watch.ranks.noticed(sign)
            return "go"
        inside = step is None and watch.quiet.local.depth  # the update cannot be left out
        if not inside and watch.can_rewind(sign):
            try:
                self.replay(sign)
                return "cancel"
            except Exception as error:  # the harm is told all the same
                watch.rewind.stop()
                watch.recorder_failed(error)
        watch.tell_unexplained(sign)
        if watch.plan.policy != "skip" or step is None:
            return "go"
        watch.drop()
        return "cancel"

    def replay(self, sign: Sign | None) -> None:
        """Back to the start of the step; the loop itself will do it once more, recorded."""
        watch = self.watch
        replaying = Replaying(watch, sign, list(watch.guard.local.values))
        watch.rewind.back()
        watch.guard.begin_step()
        watch.ledger.step_left_out()
        watch.phase = replaying
        watch.recorder.resume(watch.step, uses_optimizer=watch.uses_optimizer)

    # ---- what the program gets out ------------------------------------------------------------

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        watch = self.watch
        bad = bad_read(tensor, value)
        place = (frame.f_code, frame.f_lasti)
        if bad is None or (not math.isnan(bad) and place in watch.meant):
            return
        if math.isnan(bad) or not watch.recorder.slicer.is_written(tensor):
            sign = Sign(
                sink="observed", subject="value read out", step=watch.step, value=bad,
                proof=capture(frame),
            )  # fmt: skip
            watch.ledger.read(place, sign)

    def saved(self, obj: Any, frame: FrameType) -> None:
        frames = capture(frame)
        place = (frame.f_code, frame.f_lasti)
        self.watch.ledger.saved(place, self.watch.guard.saved(obj, self.watch.step, frames))

    def model_returned(self, module: Any, output: Any) -> None:
        """What the program does next with a bad output tells whether it deals with it: record that.
        Of a module whose outputs it deals with, again and again, only some are followed."""
        watch = self.watch
        sign = watch.guard.output(module, output, watch.step)
        watch.ledger.model_returned(id(module), sign)
        if sign is None or not watch.traces or watch.recorder.has_compiled:
            return
        times = self._bad_outputs[id(module)] = self._bad_outputs.get(id(module), 0) + 1
        if times & (times - 1) == 0 and not watch.has_told and watch.plan.armed_from is None:
            self._go_live().follow(module, output)

    def cast_begins(self) -> None:
        """A weight that does not fit becomes infinite: record what is made of it."""
        watch = self.watch
        if watch.traces and watch.plan.armed_from is None and not watch.recorder.has_compiled:
            self._go_live()

    def compiled(self) -> None:
        if self.watch.plan.armed_from is None:
            self.watch.recorder.has_compiled = True

    # ---- the end ------------------------------------------------------------------------------

    def ends(self, error: BaseException | None) -> None:
        watch = self.watch
        if self._waits:
            return
        self._look_at_leaves()
        losses = watch.guard.bad_losses(watch.step, None)
        if losses and not watch.scaling.in_use:  # that nobody stepped with
            watch.ledger.backward_begins(losses)
            state, spoilt = watch.guard.left_bad(list(watch.optimizers), watch.step)
            watch.ledger.backward_ends(spoilt=spoilt)
            for sign in watch.ledger.state_spoilt(state) if state else ():
                watch.tell_unexplained(sign)
        code = exit_code(error)
        if error is None or code is not None:
            counted = watch.ledger.exits(code or 0)
            if not code:  # whether an infinity that nobody saw made was meant cannot be told
                counted = [s for s in counted if s.sink == "loss" or _is_nan(s.value)]
        else:
            counted = watch.ledger.raised(_complaint(error, watch.step), complains(error))
        for sign in counted[:1]:
            watch.tell_unexplained(sign)


class Live(Phase):
    """Every operation is recorded as it happens."""

    how: Literal["live", "rewind"] = "live"

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._calls = 0
        self._casts = False
        self._harmed = False  # this step

    def take_over(self, losses: list[float]) -> None:
        """The backward pass of this step was not recorded."""
        self.watch.recorder.losses.value = losses[-1] if losses else None

    def follow(self, module: Any, output: Any) -> None:
        """An output that is known to be bad, of a call that was not recorded."""
        self.watch.recorder.outputs.ends(module, output, None)
        self._calls = LIVE_CALLS

    # ---- training -----------------------------------------------------------------------

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        recorder = self.watch.recorder
        signs = self._explained(recorder.losses.before(roots, frame))
        self.watch.ledger.backward_begins(signs)
        self.watch.guard.note_loss(roots)

    def backward_ends(self, roots: Any) -> None:
        spoilt = self.watch.recorder.losses.after()
        self.watch.ledger.backward_ends(spoilt=spoilt)
        if not self.watch.uses_optimizer and not self.watch.quiet.local.depth:
            self.watch.step = max(self.watch.step, self.watch.recorder.tracer.step)
            self.unit_is_over()

    def step_begins(self, step: Step) -> Decision:
        watch = self.watch
        gradients = watch.recorder.updates.before(step)
        counted = watch.ledger.step_begins(list(map(_sign_of, gradients)))
        self._count(counted)
        if self._harmed and watch.plan.policy == "skip":
            return self._leave_out()
        watch.recorder.updates.begin(step)
        return "go"

    def _leave_out(self) -> Decision:
        self._harmed = False
        self.watch.drop()
        return "cancel"

    def step_left(self) -> None:
        self.watch.recorder.updates.end()

    def step_ends(self, step: Step) -> None:
        self._look_after(step)
        self.watch.step_is_over()

    def _look_after(self, step: Step) -> None:
        watch, recorder = self.watch, self.watch.recorder
        recorder.updates.end()
        watch.history.gradients(recorder.updates.magnitudes)
        losses = [] if recorder.losses.value is None else [recorder.losses.value]
        watch.history.row(watch.step, losses, learning_rate(step.optimizer), watch.scaling.scale)
        self._count(watch.ledger.step_ends(list(map(_sign_of, recorder.updates.after(step)))))
        recorder.step_is_over()
        self._harmed = False

    def leaves_updated(self, spoilt: list[Harm]) -> None:
        watch = self.watch
        losses = watch.recorder.losses
        watch.history.row(watch.recorder.tracer.step, _listed(losses.value), None, None)
        self._count(watch.ledger.updated_by_hand(list(map(_sign_of, spoilt))))
        watch.step = max(watch.step, watch.recorder.tracer.step + 1)

    def scale_collapsed(self, step: Step) -> None:
        scaling = self.watch.scaling
        effect = (
            f"GradScaler skipped {scaling.skips} steps in a row; "
            f"the loss scale fell to {scaling.scale:g}"
        )
        scaling.skips = 0
        for harm in self.watch.recorder.updates.scaled_away(step, effect):
            self._count(self.watch.ledger.scale_collapsed(_sign_of(harm)))

    def settle(self) -> None:
        watch = self.watch
        if not watch.is_live(watch.step) and not watch.plan.always_live:
            self.go_quiet()
        elif watch.plan.policy == "skip" and not watch.rewind.batches.ever:
            watch.rewind.save()

    def fetch_begins(self) -> None:
        if self.watch.plan.policy == "skip" and not self.watch.rewind.batches.given:
            self.watch.rewind.save()

    def step_left_out(self) -> None:
        self.watch.rewind.batches.begin_step()
        if not self.watch.rewind.batches.ever:
            self.watch.rewind.save()

    def unit_is_over(self) -> None:
        watch = self.watch
        self._calls += 1
        stays = watch.plan.always_live or watch.plan.armed_from is not None
        if self._calls >= LIVE_CALLS and not stays and not watch.recorder.outputs.is_waiting:
            self.go_quiet()

    def operations_are_many(self) -> None:
        """A long program that has not begun to train, and may never: recording slows it down."""
        plan = self.watch.plan
        if plan.armed_from is None and not plan.always_live and not self.watch.uses_optimizer:
            self.go_quiet()

    def go_quiet(self) -> None:
        watch = self.watch
        watch.has_rested = True
        watch.phase = Guarding(watch)
        watch.recorder.rest()
        watch.rewind.save()

    def compiled(self) -> None:
        plan = self.watch.plan
        self.watch.recorder.has_compiled = True
        if plan.always_live or plan.armed_from is not None:
            self.watch.quiet.then(self.watch.recorder.run_eagerly)
        else:
            self.go_quiet()

    def cast_begins(self) -> None:
        self._casts = True

    # ---- what the program gets out ------------------------------------------------------------

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        watch, checks = self.watch, self.watch.recorder.checks
        place = (frame.f_code, frame.f_lasti)
        known = self.watch.recorder.tracer.entry_of(local_of(tensor)) is not None
        if known and checks.is_nonfinite(tensor):  # else torch reads what it is still making
            if watch.ledger.has_read(place):
                return
            signs = self._explained(checks.bad("observed", [(how, tensor)], capture(frame)))
            if not signs:
                watch.meant.add(place)
            watch.ledger.read(place, signs[0] if signs else None)
        elif checks.shadows:
            wrong = self._explained(checks.wrong("observed", [(how, tensor)], capture(frame)))
            if wrong:
                watch.ledger.read(place, wrong[0])
        elif watch.ledger.has_read(place):
            watch.ledger.read(place, None)

    def saved(self, obj: Any, frame: FrameType) -> None:
        named = [("saved tensor", t) for t in saved_tensors(obj)]
        signs = self._explained(self.watch.recorder.checks.bad("observed", named, capture(frame)))
        self.watch.ledger.saved((frame.f_code, frame.f_lasti), signs[0] if signs else None)

    def output_returned(self, module: Any, bad: list[Harm]) -> None:
        self.watch.ledger.model_returned(id(module), _sign_of(bad[0]) if bad else None)

    def left_behind(self, names: Mapping[str, Any]) -> None:
        if not self.watch.told:
            harms = self.watch.recorder.results(names)
            self.watch.ledger.left_behind(list(map(_sign_of, harms)))

    # ---- harm -----------------------------------------------------------------------------

    def _explained(self, harms: list[Harm]) -> list[Sign]:
        """At once, for the values will be gone; without those that the program meant."""
        found = [(harm, self.watch.recorder.explain(harm)) for harm in harms]
        return [_sign_of(harm, evidence) for harm, evidence in found if evidence is not None]

    def _count(self, counted: list[Sign]) -> None:
        for sign in counted:
            proof = sign.proof
            if not isinstance(proof, (Harm, Evidence)):  # the guard saw it, before the recording
                self.watch.tell_unexplained(sign)
                continue
            evidence = self.watch.recorder.explain(proof) if isinstance(proof, Harm) else proof
            if evidence is not None:
                self._found(sign, evidence)

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        watch = self.watch
        if place_of(evidence) in map(place_of, watch.told):
            self._harmed = True
            watch.later += watch.plan.policy == "warn"
        elif watch.has_rested and is_unseen(evidence):
            watch.tell_unexplained(sign)  # it was there before the recording began
        else:
            self._harmed = True
            watch.tell(evidence, self.how)

    # ---- the end ------------------------------------------------------------------------------

    def ends(self, error: BaseException | None) -> None:
        watch, recorder = self.watch, self.watch.recorder
        code = exit_code(error)
        if code is not None:
            left = [] if code else recorder.losses.left_gradients()
            watch.ledger.left_behind(list(map(_sign_of, left)))
            self._count(watch.ledger.exits(code))
        elif error is not None and not watch.told:
            harm = recorder.raised(error)
            sign = None if harm is None else _sign_of(harm)
            self._count(watch.ledger.raised(sign, complains(error)))


class Replaying(Live):
    """The step that failed, once more, recorded; accepted only if it is the same one."""

    how = "rewind"

    def __init__(self, watch: Watch, sign: Sign | None, losses: list[float]) -> None:
        super().__init__(watch)
        self._sign = sign
        self._expected = losses
        self._explains = False
        self._first_look: Evidence | None = None  # of a replay that may have been another step
        # Its batches are given again; or one step is as good as another, as all were skipped.
        lasting = sign is not None and sign.subject == LOSS_SCALE
        self._is_same = watch.rewind.batches.ever or lasting

    def settle(self) -> None: ...
    def fetch_begins(self) -> None: ...
    def unit_is_over(self) -> None: ...
    def step_left_out(self) -> None: ...
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
        watch = self.watch
        decision = super().step_begins(step)
        if watch.phase is not self:
            return "go"  # given up
        if self._first_look is not None and self._explains:
            return self._once_more()
        if not self._explains:
            return decision  # the update itself may show it
        return self._is_over()

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
        watch.guard.begin_step()
        watch.ledger.step_left_out()
        watch.rewind.back()
        return "cancel"

    def _leave_out(self) -> Decision:
        return "go"  # `_is_over` decides

    def _found(self, sign: Sign, evidence: Evidence) -> None:
        watch = self.watch
        alone = watch.ranks is None and watch.plan.policy != "skip"
        if alone and not is_conclusive(evidence):
            self._give_up()
        elif not alone or self._is_same or self._is_seen_again(evidence):
            self._explains = True
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

    def _is_over(self) -> Decision:
        watch = self.watch
        self._guard_again()
        watch.rewind.batches.stop_repeating()
        if watch.plan.policy != "skip":
            watch.rewind.schedules.go_on()
            return "go"
        watch.drop()
        return "cancel"

    def _give_up(self) -> None:
        """The replay was another step, or showed nothing: this process cannot tell."""
        watch = self.watch
        self._guard_again()
        watch.rewind.stop()
        if watch.plan.policy == "skip":
            watch.skipped.append(watch.step)
        if self._sign is not None:
            watch.tell_unexplained(self._sign)

    def _guard_again(self) -> None:
        self.watch.recorder.updates.end()
        self.watch.has_rested = True
        self.watch.phase = Guarding(self.watch)
        self.watch.recorder.rest()

    def ends(self, error: BaseException | None) -> None:
        if not self._explains:
            self._give_up()

    def broke(self) -> None:
        """Nothing is repeated because of it; what the guard saw before is told."""
        self.watch.rewind.stop()
        if self._sign is not None and self.watch.ranks is None:
            self.watch.tell_unexplained(self._sign)


# ---- parts ----------------------------------------------------------------------------------


def exit_code(error: BaseException | None) -> int | None:
    """Of a program that ends itself; None: an exception ends it."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return None


def _sign_of(harm: Harm, evidence: Evidence | None = None) -> Sign:
    return Sign(
        sink=harm.sink, subject=harm.subject, step=harm.step, wrong=harm.known is not None,
        value=evidence.sink_value if evidence is not None else None, proof=evidence or harm,
    )  # fmt: skip


def _complaint(error: BaseException | None, step: int) -> Sign | None:
    if error is None or not complains(error):
        return None
    subject = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return Sign(sink="exception", subject=subject, step=step, proof=frames_of(error))


def _listed(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _is_nan(value: float | complex | None) -> bool:
    return value is not None and value != value


def place_of(evidence: Evidence) -> tuple[object, ...]:
    """What makes two harms the same fault."""
    site = evidence.origin.site
    return (site and (site.file, site.line, site.column), evidence.origin.op)


def _facts(evidence: Evidence) -> str:
    """What two looks at the same step have in common, as text: NaN is NaN there."""
    origin = evidence.origin
    return repr((origin.op, origin.site, [(o.index, o.value, o.stats) for o in origin.inputs]))


def is_unseen(evidence: Evidence) -> bool:
    """Whether the bad value was there when the recording began, and no loader gave it."""
    value = evidence.origin.inputs[0] if evidence.origin.inputs else None
    loaded = value is not None and value.source == FROM_LOADER
    return evidence.origin_kind == "entry" and evidence.origin.index < 0 and not loaded


def is_conclusive(evidence: Evidence) -> bool:
    """Whether the recording reached back far enough to see where it began."""
    if evidence.origin_kind != "entry" or evidence.around.remade is not None:
        return True
    value = evidence.origin.inputs[0] if evidence.origin.inputs else None
    return value is not None and value.source == FROM_LOADER


def frames_at(sign: Sign) -> Frames | None:
    """Where the guard saw it."""
    return sign.proof if isinstance(sign.proof, Frames) else None
