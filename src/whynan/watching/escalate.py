"""When a bad step earns a full trace: live, by rewinding, or not in this process."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from whynan.model import Evidence
from whynan.record.exceptions import complains
from whynan.record.freeze import FROM_LOADER
from whynan.record.patches import Patches
from whynan.record.session import Session
from whynan.record.sites import beyond_own, capture, is_torch_file
from whynan.recording import Recording
from whynan.watching.batches import Batches
from whynan.watching.buffers import Buffers
from whynan.watching.casts import Casts
from whynan.watching.doubts import Doubts
from whynan.watching.guard import LOSS_SCALE, Decision, Guard, Optimizer, Seen, is_transformed
from whynan.watching.inference import Inference, is_part_of_another
from whynan.watching.randomness import Randomness
from whynan.watching.schedules import Schedules

Policy = Literal["stop", "skip", "warn"]
How = Literal["live", "rewind"]
LIVE_STEPS = 5  # recorded as they happen: most scripts fail early, and it is cheap
LIVE_CALLS = 8  # of a model without gradients, or backward passes without an optimizer


class Watch:
    """Guard, tracer and rewind around one program.

    `found` is told what the tracer explains; `unexplained` what only the guard saw and this
    process cannot repeat. Either may raise to leave the program.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        found: Callable[[Evidence, How], None],
        unexplained: Callable[[Seen], None],
        trace: bool = True,
        live_steps: int = LIVE_STEPS,
        armed_from: int | None = None,
    ) -> None:
        self.policy = policy
        self.found = found
        self.unexplained = unexplained
        self.traces = trace  # False: detect only
        self.live_steps = live_steps
        self.armed_from = armed_from  # the step that another run is known to fail at
        self.on_step: Callable[[int], None] = lambda step: None
        # Several ranks decide together, right after each has looked; None: this process alone.
        self.together: Callable[[Seen], None] | None = None
        self.on_error: Callable[[BaseException], None] = lambda error: None
        self.skipped: list[int] = []
        self.later = 0  # harmful steps after the reported one
        self.buffers = Buffers()
        self.guard = Guard(self.buffers)
        self.randomness = Randomness()
        self.batches = Batches(self.randomness)
        self.session = Session(on_evidence=self._evidence)
        self.session.on_known_harm = self._explained_before
        self._schedules = Schedules()
        self._inference = Inference(self._model_is_called, self._model_returned, self.session.leave)
        self._casts = Casts(lambda: self.guard.looking, self.guard.quietly, self._cast_overflowed)
        self._patches = Patches()
        self._phase: Literal["live", "guard", "replay"] = "guard"
        self._seen: Seen | None = None
        self._expected: list[float] = []
        self._explained = False  # by the replay that is running
        self._begins_at = 0  # the first operation of the replay
        self._is_same = False  # the replay is known to be the step that failed
        self._first_look: Evidence | None = None  # of a replay that may have been another step
        self._reported = False
        self._doubts = Doubts(self.guard.readers.has_judged)
        self._outputs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # bad ones
        self._judged: Seen | None = None  # an output that is being followed
        self._calls = 0
        self._has_rested = False  # since then, values exist that nobody saw made
        self._rests = False  # until there is something to train
        self.start_states: Any = None
        self._threads: set[int] = set()

    # ---- start and end ----------------------------------------------------------------

    def start(self, models: Sequence[Any] = (), optimizers: Sequence[Optimizer] = ()) -> None:
        """Models and optimizers that exist already may be given; later ones are found."""
        guard = self.guard
        guard.on_harm, guard.on_doubt, guard.on_large = self._harm, self._doubt, self._large
        guard.on_tested = self._doubts.add_tested
        self._doubts.ask = lambda seen: self.unexplained(seen)
        guard.before_step, guard.after_step = self._before_step, self._after_step
        guard.after_backward, guard.on_loss = self._after_backward, self._compare_losses
        guard.on_cancel = self.session.optimizers.leave
        guard.on_left_out = self._left_out
        guard.on_error, guard.roots = self.on_error, self.session.modules.roots
        guard.is_written = self.session.slicer.is_written
        guard.looking = self.armed_from is None
        self.session.tracer.on_step_back = self.on_error
        self.session.tracer.on_many = self._many
        self.batches.active = lambda: guard.active
        self.batches.on_fetch = lambda: guard.quietly(self._fetching)
        guard.on_follow = self._first_optimizer
        guard.install(self._patches)
        for part in (self.batches, self.buffers, self.randomness):
            part.install(self._patches)
        self._inference.install(self._patches)
        self._casts.install(self._patches)
        self.batches.on_given = self._given
        self.session.earlier = guard.history.rows
        self._patches.wrap(torch, "compile", self._wrap_compile)
        for model in models:
            self.session.modules.know(model)
            self.buffers.know(model)
        for optimizer in optimizers:
            guard.follow(optimizer)
        if self.traces and self.live_steps > 0:
            self._go_live(start=True)

    def stop(self, error: BaseException | None) -> None:
        """The program is over; `error` is what ended it. May report what is still open."""
        try:
            phase, self._phase = self._phase, "guard"
            if phase == "live":
                self.session.stop(error)
            elif phase == "replay" and self._seen is not None and not self._explained:
                self.session.pause()
                self._give_up()
            elif error is None or isinstance(error, SystemExit):
                self.guard.quietly(self.guard.look_at_losses)
                self.guard.quietly(self._doubts.end, error)
            elif self.guard.active and self.armed_from is None and complains(error):
                self._exception(error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take everything off, without a last look."""
        self.guard.active = False
        self.session.abandon()
        self._inference.remove()
        self._schedules.go_on()
        self._patches.restore()

    def _exception(self, error: BaseException) -> None:
        from whynan.record.exceptions import frames_of

        message = str(error).split("\n")[0]
        self._report(
            Seen(
                sink="exception", subject=f"{type(error).__name__}: {message}",
                step=self.guard.step, frames=frames_of(error), certain=False,
            )
        )  # fmt: skip

    def recording(self) -> Recording:
        """What was seen so far, by the tracer and by the guard."""
        recorded = self.session.recording()
        rows = {row.step: row for row in (*recorded.history, *self.guard.history.rows())}
        return replace(
            recorded,
            steps=max(recorded.steps, self.guard.step),
            history=self.guard.history.with_layers(rows[step] for step in sorted(rows)),
        )

    # ---- live recording -----------------------------------------------------------------

    def _is_live(self, step: int) -> bool:
        if not self.traces:
            return False
        if self.armed_from is not None and step >= self.armed_from:
            return True
        if self.session.surroundings.compiled:
            return False  # recording would run it eagerly: other results
        if step in self._doubts.steps_to_record:
            return True
        return step < self.live_steps or (self.live_steps > 0 and _is_power_of_ten(step))

    def _go_live(self, *, start: bool = False) -> None:
        if start:
            self.session.start()
        else:
            self.session.resume(self.guard.step, uses_optimizer=self.guard.uses_optimizer)
        self._phase = "live"
        self.guard.looking = False

    def _go_quiet(self) -> None:
        if self.session.pause():
            self._judged = None
            self._has_rested = True
            self._phase = "guard"
            self.guard.looking = self.armed_from is None
            self._save_states()

    def _many(self) -> None:
        """A long program that has not begun to train, and may never: recording slows it down."""
        if self._phase == "live" and self.armed_from is None and not self.guard.uses_optimizer:
            self.session.rest()
            self._rests = self._has_rested = True
            self._phase = "guard"
            self.guard.looking = True

    def _first_optimizer(self) -> None:
        """The model exists, nothing has run: the first step's start."""
        self.batches.know_frameworks()
        if self._rests:
            self._rests = False
            self.session.leave()
            self._settle()
        if self.start_states is None:
            self.buffers.save()
            self.start_states = self.randomness.save()

    def _save_states(self) -> None:
        """What the next step starts from."""
        self.buffers.save()
        if not self.batches.ever:
            self.start_states = self.randomness.save()

    def _settle(self) -> None:
        """At the border of two steps: record the next one, or not."""
        if self._phase == "replay":
            return
        if self._phase == "live":
            if not self._is_live(self.guard.step):
                self._go_quiet()
            elif self.policy == "skip" and not self.batches.ever:
                self._save_states()
        elif self._is_live(self.guard.step):
            self._go_live()
        elif not self.batches.ever:
            self._save_states()

    def _evidence(self, evidence: Evidence) -> None:
        if self._judged is not None and not is_conclusive(evidence):
            seen, self._judged = self._judged, None
            self.session.take_back()  # it is harm, but where it began was not recorded
            self._doubts.drop()
            self.unexplained(seen)
            return
        if self._phase == "replay" and evidence.sink == "observed":
            if evidence.origin.index < self._begins_at:
                self.session.take_back()  # what the step that was left out had made
                return
        elif self._has_rested and self._phase != "replay" and is_unseen(evidence):
            self._made_while_resting(evidence)
            return
        alone = self.together is None and self.policy != "skip"
        if self._phase == "replay" and alone:
            if not is_conclusive(evidence):
                self._give_up()
                return
            if not self._is_same and not self._is_seen_again(evidence):
                return
        self._explained = self._reported = True
        self.found(evidence, "rewind" if self._phase == "replay" else "live")

    def _made_while_resting(self, evidence: Evidence) -> None:
        """Nothing is known of where it began; after a report it is what that one told of."""
        self.session.take_back()
        if not self._reported:
            value = evidence.sink_value
            trains = evidence.sink in ("loss", "gradient", "parameter")
            seen = Seen(
                sink=evidence.sink, subject=evidence.subject, step=self.guard.step, value=value,
                certain=trains or value != value,
            )  # fmt: skip
            self._report(seen) if seen.certain else self.unexplained(seen)

    def _is_seen_again(self, evidence: Evidence) -> bool:
        """A loop that takes its batches by hand goes on to the next one, which may be bad, too.
        Only a loop that does the same twice does what it did before."""
        if self._first_look is None or self._explained:  # more of the same replay
            self._first_look = self._first_look or evidence
            self._explained = True
            self.session.take_back()
            return False
        first, self._first_look = self._first_look, None
        if _facts(first) != _facts(evidence):
            self.session.take_back()
            self._give_up()
            return False
        return True

    def _explained_before(self) -> None:
        self._explained = True
        if self.policy == "warn":
            self.later += 1

    # ---- what the guard reports -----------------------------------------------------------

    def _before_step(self, optimizer: Optimizer) -> Decision:
        self._threads.add(threading.get_ident())
        if self._phase == "guard" or (self._phase == "live" and self.policy != "skip"):
            return "go"
        if not self._explained:
            self.session.optimizers.look(optimizer, capture(sys._getframe(1)))
        if not self._explained:
            return "go"  # the update itself may show it
        if self._first_look is not None:
            if not self.session.pause():
                self._give_up()
                return "go"
            self.rewind()
            return "cancel"
        if self._phase == "replay":
            return self._end_of_replay()
        self._explained = False
        self.drop()
        return "cancel"

    def _after_step(self, optimizer: Optimizer) -> None:
        if self._phase == "replay":
            if self._explained and self._first_look is None:
                self._end_of_replay()
            else:
                self._give_up()
        self._schedules.go_on()
        self._doubts.step_is_taken()
        self.batches.begin_step()
        self._settle()
        self.on_step(self.guard.step)

    def _after_backward(self, values: list[float] | None) -> None:
        """Without an optimizer."""
        self.guard.step = max(self.guard.step, self.session.tracer.step)
        self._unit_is_over()

    def _unit_is_over(self) -> None:
        self._doubts.settle()
        self._calls += 1
        if self._phase == "live" and self._calls >= LIVE_CALLS and self.armed_from is None:
            self._go_quiet()

    def _fetching(self) -> None:
        self._schedules.go_on()
        if not self.guard.has_loss() and not self.batches.given:
            self._doubts.settle()
        needed = self._phase == "guard" or (self._phase == "live" and self.policy == "skip")
        if needed and not self.batches.given:
            self._save_states()  # after all that follows an update: averages, evaluation

    def _left_out(self) -> None:
        """The scaler skipped this step: the next one begins with batches of its own."""
        if self._phase != "replay":
            self.batches.begin_step()
            if not self.batches.ever:
                self._save_states()

    def _large(self) -> None:
        """Gradients this large may overflow in the update itself: record that."""
        if self.traces and self._phase == "guard" and not self.session.surroundings.compiled:
            self._go_live()
            values = self.guard.local.values  # the backward pass was not recorded
            self.session.backward.loss = values[-1] if values else None

    def _harm(self, seen: Seen, optimizer: Optimizer | None) -> Decision:
        if self._reported and self.policy == "warn":
            self.later += 1
            return "go"
        if seen.sink == "parameter" and self._reported:
            return "go"  # too late to skip, and said already
        self._seen = seen
        self._doubts.drop()
        if self.together is not None:
            self.together(seen)
            return "go"
        inside = optimizer is None and self.guard.local.depth  # the update cannot be left out
        if not inside and self._can_rewind(seen):
            self.rewind()
            return "cancel"
        if not self._reported:
            self._report(seen)
        if self.policy != "skip" or optimizer is None:
            return "go"
        self.drop()
        return "cancel"

    def _doubt(self, seen: Seen) -> None:
        if self.traces and self.policy == "stop" and not self._reported:
            self._doubts.add(seen)

    def _cast_overflowed(self, name: str) -> None:
        self._doubt(
            Seen(
                sink="parameter", subject=name, step=self.guard.step, value=math.inf, certain=False,
            )
        )  # fmt: skip

    def _report(self, seen: Seen) -> None:
        self._reported = True
        self.unexplained(seen)

    # ---- rewind -------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        return self._phase == "live"

    def could_rewind(self) -> bool:
        """Whether this process could repeat the step, for another rank's sake or its own."""
        seen = self._seen or Seen(sink="gradient", subject="gradients", step=self.guard.step)
        return self._phase == "guard" and self._can_rewind(seen)

    def _can_rewind(self, seen: Seen) -> bool:
        me = threading.get_ident()
        return (
            self.traces
            and seen.sink in ("loss", "gradient")
            and not (self._reported and self.policy != "skip")
            and me == threading.main_thread().ident
            and self._threads <= {me}
            and self.guard.local.depth <= 1
            and self.guard.uses_optimizer
            and self.batches.can_repeat()
            and (self.batches.ever or self.policy != "skip")  # a loop's own batches are not known
        )

    def rewind(self) -> None:
        """Back to the start of the step; the loop itself will do it once more, recorded."""
        self._expected = list(self.guard.local.values)
        self._explained = False
        # Its batches are given again; or one step is as good as another, as all were skipped.
        lasting = self._seen is not None and self._seen.subject == LOSS_SCALE
        self._is_same = self.batches.ever or lasting
        self.guard.begin_step()
        self.buffers.restore()
        if not self.batches.ever and self.start_states is not None:
            self.randomness.restore(self.start_states)
        self.batches.repeat()
        self._schedules.stand_still()
        self.session.resume(self.guard.step, uses_optimizer=self.guard.uses_optimizer)
        self.session.optimizers.expect_skips(self.guard.scaling.skips)
        self._phase = "replay"
        self._begins_at = self.session.tracer.next_index
        self.guard.looking = False

    def _given(self, index: Any) -> None:
        self.session.batches.given = index

    def _compare_losses(self) -> None:
        """Whether the replay is the same step: its losses tell."""
        if self._phase != "replay":
            return
        values = self.guard.peek_losses()
        for now, then in zip(values, self._expected, strict=False):
            if now != then and not (now != now and then != then):
                self._give_up()
                return
            self._is_same |= math.isfinite(now)

    def _end_of_replay(self) -> Decision:
        self.session.pause()
        self.batches.stop_repeating()
        self._phase = "guard"
        self.guard.looking = True
        if self.policy != "skip":
            self._schedules.go_on()
            return "go"
        self.drop()
        return "cancel"

    def drop(self) -> None:
        """As if the batch had never been there."""
        self.skipped.append(self.guard.step)
        self.buffers.restore()
        self.batches.drop()
        self.batches.begin_step()
        self.guard.begin_step()
        self._explained = False
        self._schedules.stand_still()  # until the next batch

    def _give_up(self) -> None:
        """The replay was another step, or showed nothing: this process cannot tell."""
        seen, self._seen = self._seen, None
        self._first_look = None
        if not self.session.pause():
            self.session.tracer.active = False
        self.batches.stop_repeating()
        self._phase = "guard"
        self.guard.looking = True
        self._schedules.go_on()
        if self.policy == "skip":
            self.skipped.append(self.guard.step)
            self._explained = False
        if seen is not None and not self._reported:
            self._report(seen)

    # ---- models without gradients, compiled functions -----------------------------------

    def _model_is_called(self, module: Any) -> None:
        self.guard.quietly(self._unit_is_over)

    def _model_returned(self, module: Any, output: Any) -> None:
        guard = self.guard
        if torch.is_grad_enabled():  # a closure inside step()
            return
        if guard.looking and not guard.local.own and not is_transformed():
            seen = guard.quietly(guard.look_at_output, module, output)
            if seen is not None and not is_part_of_another():
                guard.quietly(self._judge_output, seen, module, output)

    def _judge_output(self, seen: Seen, module: Any, output: Any) -> None:
        """What the program does next with a bad output tells whether that is harm: record it. Of a
        module whose outputs it deals with, again and again, only some are followed."""
        doubts = self._outputs.setdefault(module, 0) + 1
        self._outputs[module] = doubts
        if not self.traces or self._phase != "guard" or self.session.surroundings.compiled:
            self._doubt(seen)
        elif doubts & (doubts - 1) == 0 and self.policy == "stop" and not self._reported:
            self._go_live()
            self._judged = seen
            self.session.outputs.wait_for(module, output)

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_function(*args: Any, **kwargs: Any) -> Any:
            caller = beyond_own(sys._getframe(1)).f_code.co_filename
            by_user = not is_torch_file(caller) or caller.endswith("nn/modules/module.py")
            if by_user and self.guard.active and self.armed_from is None:
                self.guard.quietly(self._compiled)
            return original(*args, **kwargs)

        return compile_function

    def _compiled(self) -> None:
        self.session.surroundings.compiled = True
        self._inference.give_up()
        if self._phase == "live":
            self._go_quiet()


def _is_power_of_ten(step: int) -> bool:
    while step > 1 and step % 10 == 0:
        step //= 10
    return step == 1


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
