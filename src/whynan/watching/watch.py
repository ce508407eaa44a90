"""Guard, recorder and rewind around one program; which of them looks is the phase's business."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

import torch

from whynan.errors import StopRun
from whynan.harm.ledger import Ledger, Sign
from whynan.model import Evidence
from whynan.record.recorder import Recorder
from whynan.record.slicing import Harm
from whynan.recording import Recording
from whynan.seam.events import Decision, Events
from whynan.seam.loading import Fetch
from whynan.seam.optimizers import Optimizer
from whynan.seam.patches import Patches
from whynan.seam.quiet import Quiet
from whynan.seam.reading import readable
from whynan.seam.training import Step
from whynan.seam.values import know_safetensors
from whynan.watching.guard import Guard
from whynan.watching.history import History
from whynan.watching.phases import Done, Guarding, Live, Phase
from whynan.watching.rewind import Rewind

Policy = Literal["stop", "skip", "warn"]
How = Literal["live", "rewind"]
LIVE_STEPS = 5  # recorded as they happen: most scripts fail early, and it is cheap
MAX_SUSPECTS = 8  # steps that are recorded because of something odd in the one before
SKIPS_IN_A_ROW = 8
COLLAPSED_SCALE = 256.0  # eight halvings of torch's own starting scale


class Teller(Protocol):
    """Who is told; either of the first two may raise to leave the program."""

    def found(self, evidence: Evidence, how: How) -> None: ...
    def unexplained(self, sign: Sign) -> None: ...
    def stepped(self, step: int) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class Ranks(Protocol):
    """Several processes that decide together, right after each has looked."""

    def noticed(self, sign: Sign) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to watch."""

    policy: Policy = "stop"
    traces: bool = True  # False: detect only
    live_steps: int = LIVE_STEPS
    armed_from: int | None = None  # the step that another run is known to fail at
    always_live: bool = False  # record everything, and never go quiet
    save_batch: Path | None = None  # where the first failing batch is kept


class Scaling:
    """What GradScaler does: a skipped step is normal, a scale that collapses is harm."""

    def __init__(self) -> None:
        self.in_use = False
        self.skips = 0
        self.scale: float | None = None

    def stepped(self, scaler: Any, taken: bool) -> bool:
        """Whether the scale has collapsed."""
        self.skips = 0 if taken else self.skips + 1
        if self.scale is None or self.skips:
            self.scale = float(scaler.get_scale())
        return self.skips >= SKIPS_IN_A_ROW and self.scale <= COLLAPSED_SCALE


class Watch:
    """Hears what happens, and hands it to the phase that the program is in."""

    def __init__(self, plan: Plan, teller: Teller) -> None:
        self.plan = plan
        self.traces = plan.traces  # until the recorder fails
        self.teller = teller
        self.ranks: Ranks | None = None
        self.quiet = Quiet(self._failed)
        self.events = Events(self.quiet)
        self.ledger = Ledger()
        self.history = History()
        self.rewind = Rewind()
        self.guard = Guard(self.rewind.buffers, self.history)
        self.recorder = Recorder(self, self.quiet, self.history)
        self.recorder.batches.save_to = plan.save_batch
        self.scaling = Scaling()
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.step = 0
        self.uses_optimizer = False
        self.told: list[Evidence] = []
        self.skipped: list[int] = []
        self.later = 0  # harmful steps after the reported one
        self.has_told = False
        self.has_rested = False  # since then, values exist that nobody saw made
        self.suspects: set[int] = set()  # steps to record because of something odd before
        self.meant: set[Any] = set()  # places where an infinity was read that the program wrote
        self.threads: set[int] = set()
        self.phase: Phase = Guarding(self)
        self._patches = Patches()

    # ---- start and end ----------------------------------------------------------------

    def start(self, models: Sequence[Any] = (), optimizers: Sequence[Optimizer] = ()) -> None:
        """Models and optimizers that exist already may be given; later ones are found."""
        for listener in (self.rewind, self.recorder, self):
            self.events.listen(listener)
        self.events.install(self._patches)
        self.rewind.install(self._patches)
        for model in models:
            self.recorder.names.know(model)
            self.rewind.buffers.know(model)
        for optimizer in optimizers:
            self.events.follow(optimizer)
        self.recorder.tracer.will_train = False  # of what was set up before, nothing follows here
        if self.plan.traces and self.plan.live_steps > 0:
            self.phase = Live(self)
            self.recorder.start()

    def know_safetensors(self) -> None:
        """It was being imported when the watch began."""
        know_safetensors(self.events, self._patches)

    def stop(self, error: BaseException | None = None) -> None:
        """The program is over; `error` is what ended it. May tell what is still open."""
        phase, self.phase = self.phase, Done(self)
        try:
            if not (isinstance(error, StopRun) and self.has_told):
                self.quiet(phase.ends, None if isinstance(error, StopRun) else error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take everything off, without a last look."""
        self.quiet.active = False
        self.recorder.abandon()
        self._patches.restore()

    def left_behind(self, names: Mapping[str, Any]) -> None:
        """What a block leaves in its variables is its result."""
        self.quiet(lambda: self.phase.left_behind(names))

    def request_stop(self) -> None:
        """Every thread leaves the program at its next operation."""
        self.recorder.tracer.stopping = True

    def recording(self) -> Recording:
        """What was seen so far."""
        return Recording(
            evidence=tuple(self.told),
            steps=max(self.step, self.recorder.tracer.step),
            history=self.history.with_layers(self.history.rows()),
            torch_version=torch.__version__,
            notes=self.recorder.troubles(),
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
        self.traces = tracer.active = False
        tracer.broken = f"{type(error).__name__}: {error}"
        self.teller.failed(error)
        if not isinstance(phase, (Guarding, Done)):
            self.phase = Guarding(self)
            self.quiet.then(self.recorder.put_away)
            phase.broke()

    # ---- what the program does --------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.uses_optimizer = True
        self.optimizers.add(optimizer)
        self.phase.optimizer_made()

    def backward_begins(self, roots: Any, frame: FrameType) -> None:
        self.phase.backward_begins(roots, frame)

    def backward_ends(self, roots: Any) -> None:
        self.phase.backward_ends(roots)

    def gradients_dropped(self, optimizer: Optimizer) -> None:
        self.guard.drop_losses()
        self.ledger.gradients_dropped()

    def gradients_clipped(self, norm: torch.Tensor) -> None:
        values = readable(norm)  # of what sharded gradients have together, this rank's part
        if values is not None:
            self.guard.local.clipped.append(values)

    def loss_scaled(self) -> None:
        self.scaling.in_use = True

    def scaler_stepped(self, scaler: Any, step: Step, taken: bool) -> None:
        if self.scaling.stepped(scaler, taken):
            self.phase.scale_collapsed(step)
        if self.scaling.skips:  # what was collected for it counts for nothing
            self.ledger.step_left_out()
            self.guard.begin_step()
            self.phase.step_left_out()

    def step_begins(self, step: Step) -> Decision:
        self.uses_optimizer = True
        self.threads.add(threading.get_ident())
        if self.history.is_sampled(self.step):
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
            self.history.sample(self.step, step.optimizer, self.recorder.names.roots())

    def step_left(self, step: Step) -> None:
        self.phase.step_left()

    def step_ends(self, step: Step) -> None:
        if self.history.is_measuring:
            self.history.measure_update(self.step)
        self.phase.step_ends(step)

    def step_is_over(self) -> None:
        """Count it, and begin the next one."""
        self.step += 1
        self.guard.begin_step()
        self.rewind.begin_step()
        self.phase.settle()
        self.teller.stepped(self.step)

    def fetch_begins(self, fetch: Fetch) -> None:
        self.rewind.schedules.go_on()
        self.phase.fetch_begins()

    def value_read(self, tensor: torch.Tensor, value: Any, how: str, frame: FrameType) -> None:
        self.phase.value_read(tensor, value, how, frame)

    def text_shown(self, text: str, frame: FrameType) -> None:
        self.phase.text_shown(text, frame)

    def saved(self, obj: Any, frame: FrameType) -> None:
        self.phase.saved(obj, frame)

    def array_saved(self, bad: bool, frame: FrameType) -> None:
        self.phase.array_saved(bad, frame)

    def model_called(self, module: Any) -> None:
        self.phase.unit_is_over()

    def model_returned(self, module: Any, output: Any) -> None:
        self.phase.model_returned(module, output)

    def gradients_return(self) -> None:
        self.quiet.then(self.recorder.leave)

    def cast_begins(self, module: Any) -> None:
        self.phase.cast_begins()

    def cast_ends(self, module: Any) -> None:
        self.phase.cast_ends()

    def compiled(self) -> None:
        self.phase.compiled()

    # ---- what the recorder sees ---------------------------------------------------------

    def leaves_updated(self, spoilt: list[Harm]) -> None:
        self.phase.leaves_updated(spoilt)

    def output_returned(self, module: Any, bad: list[Harm]) -> None:
        self.phase.output_returned(module, bad)

    def outputs_cleaned(self, models: list[int]) -> None:
        for model in models:
            self.ledger.output_cleaned(model)

    def operations_are_many(self) -> None:
        self.phase.operations_are_many()

    # ---- what follows from harm -----------------------------------------------------------

    def is_live(self, step: int) -> bool:
        """Whether this step is to be recorded as it happens."""
        plan = self.plan
        if not self.traces:
            return False
        if plan.armed_from is not None and step >= plan.armed_from:
            return True
        if self.recorder.has_compiled and not plan.always_live:
            return False  # recording would run it eagerly: other results
        if step in self.suspects:
            return True
        return step < plan.live_steps or (plan.live_steps > 0 and _is_power_of_ten(step))

    def suspect(self) -> None:
        """Something odd, which only a recording can judge: record the next step."""
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects.add(self.step + 1)

    def tell(self, evidence: Evidence, how: How) -> None:
        """Harm whose origin was seen."""
        if not self.told:
            evidence = self.recorder.complete(evidence)
        self.has_told = True
        self.told.append(evidence)
        try:
            self.teller.found(evidence, how)
        except StopRun:
            self.request_stop()
            raise

    def tell_unexplained(self, sign: Sign) -> None:
        """Harm whose origin was not seen; after a report, it is what that one told of."""
        if not self.has_told:
            self.has_told = True
            try:
                self.teller.unexplained(sign)
            except StopRun:
                self.request_stop()
                raise

    def can_rewind(self, sign: Sign) -> bool:
        me = threading.get_ident()
        return (
            self.traces
            and sign.sink in ("loss", "gradient")
            and not (self.has_told and self.plan.policy != "skip")
            and me == threading.main_thread().ident
            and self.threads <= {me}
            and self.quiet.local.depth <= 1
            and self.uses_optimizer
            and self.rewind.is_possible()
            # a loop's own batches are not known, so none can be left out
            and (self.rewind.batches.ever or self.plan.policy != "skip")
        )

    def drop(self) -> None:
        """As if the batch had never been there."""
        self.skipped.append(self.step)
        self.rewind.drop()
        self.guard.begin_step()
        self.ledger.step_left_out()


def _is_power_of_ten(step: int) -> bool:
    while step > 1 and step % 10 == 0:
        step //= 10
    return step == 1
