"""Guard, recorder and rewind around one program; which of them looks is the phase's business."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from whynan.errors import StopRun
from whynan.harm.ledger import Ledger, Sign
from whynan.model import Evidence
from whynan.record.compiled import Ladder
from whynan.record.recorder import Recorder
from whynan.record.refusing import harm_of_refusal
from whynan.recording import RIGHT, Recording
from whynan.seam.events import Decision, Events
from whynan.seam.loading import Fetch
from whynan.seam.optimizers import Optimizer
from whynan.seam.patches import Patches
from whynan.seam.quiet import Quiet
from whynan.seam.reading import readable
from whynan.seam.support import remark
from whynan.seam.training import Step
from whynan.seam.values import know_safetensors
from whynan.watching import nesting
from whynan.watching.body import Body
from whynan.watching.calling import Calls
from whynan.watching.carried import Carried
from whynan.watching.first_seen import FirstSeen
from whynan.watching.guard import Guard
from whynan.watching.guarding import Guarding
from whynan.watching.history import History
from whynan.watching.live import Live
from whynan.watching.outside import written
from whynan.watching.phases import Done, Phase
from whynan.watching.plan import Plan
from whynan.watching.progress import Progress
from whynan.watching.repeating import Repeating, Spending
from whynan.watching.replaying import Replaying
from whynan.watching.rewind import Rewind
from whynan.watching.signs import explained
from whynan.watching.told import Explained, Teller, Told
from whynan.watching.trials import Trials


def _taken_out(event: str) -> Callable[..., None]:
    """What the program gets of a trial that it will reject counts for nothing."""

    def hear(watch: Watch, *args: Any) -> None:
        if not watch.told.passes_over():
            getattr(watch.phase, event)(*args)

    return hear


def _of_phase(event: str) -> Callable[..., Any]:
    """An event that is the business of the phase alone."""

    def hear(watch: Watch, *args: Any) -> Any:
        return getattr(watch.phase, event)(*args)

    return hear


class Watch:
    """Hears what happens, and hands it to the phase that the program is in."""

    def __init__(self, plan: Plan, teller: Teller) -> None:
        self.plan = plan
        self.quiet = Quiet(self._failed)
        self.events = Events(self.quiet)
        self.ledger = Ledger(finite_from=plan.finite_from)
        self.rewind = Rewind()
        self.guard = Guard(self.rewind.buffers, History())
        keeps = plan.keeps_operands
        self.recorder = Recorder(self, self.quiet, self.guard.history, keeps_operands=keeps)
        self.recorder.batches.save_to = plan.save_batch
        self.recorder.updates.spares = plan.always_live
        self.progress = Progress(plan, self.recorder)
        alone = not plan.together and plan.policy != "skip" and plan.armed_from is None
        self.trials = Trials(active=alone)
        self.told = Told(teller, self.recorder, self.ledger, self.trials)
        self.calls = Calls(self)
        self.first = FirstSeen(self)
        self.spending = Spending()
        self.carried = Carried()
        self.since: Explained | None = None  # of a bad loss, if none was finite after it
        self.phase: Phase = Guarding(self)
        self._ladder = None if plan.compared is None else Ladder(plan.compared)
        self._patches = Patches()
        self._outer: list[Watch] = []  # that wait for the end of this one

    # ---- start and end ----------------------------------------------------------------

    def start(self, models: Sequence[Any] = (), optimizers: Sequence[Optimizer] = ()) -> None:
        """Models and optimizers that exist already may be given; later ones are found."""
        rewind, self._outer = self.rewind, nesting.begin(self)
        for listener in (rewind, rewind.buffers, rewind.batches, self.recorder, self):
            self.events.listen(listener)
        self.events.install(self._patches)
        rewind.install(self._patches)
        if self._ladder is not None:
            self._ladder.install(self._patches)
        for model in models:
            self.recorder.names.know(model)
            rewind.buffers.know(model)
        for optimizer in optimizers:
            self.events.follow(optimizer)
        self.recorder.tracer.will_train = False  # of what was set up before, nothing follows here
        if self.recorder.has_compiled and not self.plan.stays_live:
            self.quiet(rewind.save)
        elif self.plan.traces and self.plan.live_steps > 0:
            self.phase = Live(self)
            self.recorder.start()

    def know_safetensors(self) -> None:
        """It was being imported when the watch began."""
        know_safetensors(self.events, self._patches)

    def stop(self, error: BaseException | None = None) -> None:
        """The program is over; `error` is what ended it. May tell what is still open."""
        phase, self.phase = self.phase, Done(self)
        self.trials.active = False  # nothing is chosen any more
        try:
            if not (isinstance(error, StopRun) and self.told.has_begun):
                self.quiet(phase.ends, None if isinstance(error, StopRun) else error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take everything off, without a last look."""
        self.quiet.active = False
        self.recorder.abandon()
        self._patches.restore()
        nesting.end(self, self._outer)

    def pause(self) -> None:
        """Another one looks, inside this one."""
        if isinstance(self.phase, Replaying):
            self.phase.let_print()
        if not isinstance(self.phase, Guarding):
            self.rewind.stop()
            self.go_quiet()
        self.quiet.active = False

    def go_on(self) -> None:
        self.quiet.active = True
        self.forget_step()

    def left_behind(self, names: Mapping[str, Any]) -> None:
        """What a block leaves in its variables is its result."""
        self.quiet(self.phase.left_behind, names)

    def recording(self) -> Recording:
        """What was seen so far."""
        history, right = self.guard.history, list[str]()
        if self.plan.armed_from is not None:  # another run wants to know what this one makes of it
            right = [RIGHT + written(place) for place in self.guard.outside.meant]
        return Recording(
            evidence=tuple(self.told.evidence),
            steps=max(self.progress.step, self.recorder.tracer.step),
            history=history.with_layers(history.rows()),
            torch_version=torch.__version__,
            notes=(*self.recorder.troubles(), *right, *filter(None, [remark()])),
        )

    def climb(self, evidence: Evidence) -> Evidence | None:
        """Harm that only compiled functions have, with the place where they depart."""
        return self._ladder.climb(evidence) if self._ladder is not None else None

    def is_only_eager(self) -> bool:
        """Whether compiled functions are finite in the step in question, and in eager mode are not."""
        return self._ladder is not None and self._ladder.is_only_eager()

    # ---- from one phase to another -----------------------------------------------------

    def go_live(self) -> Live:
        live = self.phase = Live(self)
        self._record()
        return live

    def go_quiet(self) -> None:
        if not self.progress.has_rested:  # by now the program has made what it draws from
            self.rewind.randomness.look_for_generators()
        self.progress.has_rested = True
        self.phase = Guarding(self)
        self.recorder.rest()

    def replay(self, sign: Sign | None) -> None:
        """Back to the start of the step; the loop itself will do it once more, recorded."""
        replaying = Replaying(self, sign)
        self.rewind.back()
        self.forget_step()
        self.phase = replaying
        self._record()

    @contextlib.contextmanager
    def repeating(self, phase: Repeating, start: Callable[[], None]) -> Iterator[None]:
        """Some of the program is executed once more, from where `start` puts it; then all is as before."""
        guard, batches, before = self.guard.local, self.rewind.batches, self.phase
        ledger, self.ledger = self.ledger, Ledger()
        if self.recorder.tracer.active:
            self.recorder.rest()
        held = list(guard.values), list(guard.losses), list(guard.clipped), list(batches.given)
        guard.values.clear()
        guard.losses.clear()
        start()
        self.phase = phase
        self._record()
        self.recorder.tracer.local.begin_turn()  # what follows is the one that it is in
        try:
            yield
        finally:
            self.recorder.updates.end()
            self.recorder.rest()
            self.progress.has_rested = True
            self.phase = before if self.progress.traces else Guarding(self)
            self.rewind.schedules.go_on()
            self.ledger = ledger
            guard.values[:], guard.losses[:], guard.clipped[:], batches.given[:] = held

    def _record(self) -> None:
        progress = self.progress
        self.recorder.resume(progress.step, uses_optimizer=progress.uses_optimizer)

    def tell(self, sign: Sign) -> None:
        """Of harm that no recording has seen as it happened."""
        if self.told.has_begun:
            return
        found = (
            explained(sign.proof) if not sign.is_kept or isinstance(sign.proof, Evidence) else None
        )
        if isinstance(found, Explained):
            self.told.found(found.evidence, found.how)
        elif found is None:
            self.told.unexplained(sign)

    def tell_exception(self, sign: Sign, error: BaseException) -> None:
        """Whose frames are still there."""
        if self.told.has_begun:
            return
        found = Body(self).of_error(error)
        proof = self._refused_parameter(error) if found is None else Explained(*found)
        self.tell(sign if proof is None else replace(sign, proof=proof))

    def _refused_parameter(self, error: BaseException) -> Explained | None:
        """That needs no recording: no operation made it since its last update."""
        recorder = self.recorder
        harm = harm_of_refusal(error, recorder.tracer, recorder.slicer.upstream)
        evidence = recorder.explain(harm) if harm is not None else None
        trained = evidence is not None and evidence.origin.inputs[0].source is not None
        return Explained(evidence, "live") if evidence is not None and trained else None

    def can_rewind(self, sign: Sign) -> bool:
        skips = self.plan.policy == "skip"
        return (
            self.progress.traces
            and sign.sink in ("loss", "gradient")
            and (skips or not self.told.has_begun)
            and self.progress.is_in_main_thread_alone()
            and self.quiet.local.depth <= 1
            and self.progress.uses_optimizer
            and self.rewind.is_possible()
            # a loop's own batches are not known, so none can be left out
            and (self.rewind.batches.ever or not skips)
        )

    def _failed(self, error: BaseException) -> bool:
        """An error of whynan's own. Without the recorder the guard goes on looking; after one of the
        guard's, nothing stands still or is repeated because of it. What was seen is told."""
        goes_on = not isinstance(self.phase, (Guarding, Done))
        self.recorder_failed(error)
        if not goes_on:
            self.rewind.stop()
        return goes_on

    def recorder_failed(self, error: BaseException) -> None:
        """From here on the guard looks alone."""
        tracer, phase = self.recorder.tracer, self.phase
        self.progress.traces = tracer.active = False
        tracer.broken = f"{type(error).__name__}: {error}"
        self.told.teller.failed(error)
        if not isinstance(phase, (Guarding, Done)):
            self.phase = Guarding(self)
            self.quiet.then(self.recorder.put_away)
            phase.broke()

    # ---- what the program does --------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.quiet.on_device = torch.accelerator.is_available()
        self.progress.uses_optimizer = True
        self.progress.optimizers.add(optimizer)
        trial = self.trials.optimizer_made(optimizer) if self.phase.is_real else None
        if trial is not None:
            self.ledger.trial_begins(trial.search)
        self.phase.optimizer_made(optimizer)

    backward_begins = _of_phase("backward_begins")
    backward_ends = _of_phase("backward_ends")

    def gradients_dropped(self, optimizer: Optimizer) -> None:
        self.guard.drop_losses()
        self.ledger.gradients_dropped()

    def gradients_clipped(self, norm: torch.Tensor) -> None:
        values = readable(norm)  # of what sharded gradients have together, this rank's part
        if values is not None:
            self.guard.local.clipped.append(values)

    def loss_scaled(self) -> None:
        self.progress.scaling.in_use = True

    def scaler_stepped(self, scaler: Any, step: Step, taken: bool) -> None:
        scaling = self.progress.scaling
        if scaling.stepped(scaler, taken):
            self.phase.scale_collapsed(step)
        if scaling.skips:
            self.forget_step()
            self.phase.step_left_out()

    def step_begins(self, step: Step) -> Decision:
        self.progress.uses_optimizer = True
        self.progress.threads.add(threading.get_ident())
        self.progress.stepping.add(step.optimizer)
        if self.guard.history.is_sampled(self.progress.step):
            self.sample(step)
        try:
            return self.phase.step_begins(step)
        except Exception as error:
            if isinstance(self.phase, Guarding):
                raise
            self.recorder_failed(error)
            return self.phase.step_begins(step)

    def sample(self, step: Step) -> None:
        """For the plots, without which harm can still be seen and told."""
        with contextlib.suppress(Exception):
            roots, history = self.recorder.names.roots(), self.guard.history
            at, measures = self.progress.step, not step.has_closure
            history.sample(at, step.optimizer, roots, measures=measures)

    step_left = _of_phase("step_left")

    def step_ends(self, step: Step) -> None:
        if self.guard.history.is_measuring:
            self.guard.history.measure_update(self.progress.step)
        self.phase.step_ends(step)

    def step_is_over(self) -> None:
        """Count it, and begin the next one."""
        self.guard.passes = len(self.guard.local.values)
        self.progress.step += 1
        self.guard.begin_step()
        self.rewind.begin_step()
        if self._ladder is not None:
            self._ladder.step_is_over(self.progress.step - 1)
        self.phase.settle()
        self.told.teller.stepped(self.progress.step)

    def forget_step(self) -> None:
        """It is not made: what was collected for it counts for nothing."""
        self.guard.begin_step()
        self.ledger.step_left_out()

    def drop(self) -> None:
        """As if the batch had never been there."""
        self.told.skipped.append(self.progress.step)
        self.rewind.drop()
        self.forget_step()

    def fetch_begins(self, fetch: Fetch) -> None:
        self.rewind.schedules.go_on()
        self.phase.fetch_begins()

    value_read = _taken_out("value_read")
    text_shown = _of_phase("text_shown")
    saved = _taken_out("saved")
    array_saved = _taken_out("array_saved")
    model_called = _of_phase("model_called")
    model_begins = _of_phase("model_begins")
    model_returned = _taken_out("model_returned")
    cast_begins = _of_phase("cast_begins")
    compiled = _of_phase("compiled")
    profiling_begins = _of_phase("profiling_begins")

    # ---- what the recorder sees ---------------------------------------------------------

    leaves_updated = _of_phase("leaves_updated")
    average_spoilt = _of_phase("average_spoilt")
    output_returned = _taken_out("output_returned")
    operations_are_many = _of_phase("operations_are_many")

    def generator_used(self, generator: torch.Generator) -> None:
        self.rewind.randomness.know(generator)

    def outputs_cleaned(self, models: list[int]) -> None:
        for model in models:
            self.ledger.output_cleaned(model)
