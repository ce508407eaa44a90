"""One traced block: installs the recorder, collects evidence, leaves everything as found."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from whynan.model import Evidence, HistoryRow
from whynan.record.backward_sink import BackwardSink
from whynan.record.batches import Batches
from whynan.record.checks import Checks
from whynan.record.circumstances import look_around
from whynan.record.exceptions import harm_of_exception
from whynan.record.fused import Fused
from whynan.record.modules import ModuleTracker
from whynan.record.optimizer_sink import OptimizerSink
from whynan.record.output_sink import OutputSink
from whynan.record.patches import Patches
from whynan.record.remaking import with_the_dataset
from whynan.record.retention import forget
from whynan.record.scripts import Scripts
from whynan.record.slicing import Harm, Slicer
from whynan.record.surroundings import Surroundings
from whynan.record.tracer import HOLD_BYTES, Tracer
from whynan.record.waiting import Waiting
from whynan.recording import Recording

MAX_HARMS = 20


class Session:
    """`start()`, run the program, `stop()`; `recording()` is what was seen."""

    def __init__(
        self,
        *,
        on_evidence: Callable[[Evidence], None] = lambda evidence: None,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        self.modules = ModuleTracker()
        self.tracer = Tracer(self.modules, hold_bytes=hold_bytes)
        self.modules.special[torch.nn.LSTM] = Fused(self.tracer).call
        self.slicer = Slicer(self.tracer)
        self.checks = Checks(self.tracer, self.modules, self._harm, self.slicer.evidence)
        self.outputs = OutputSink(self.checks)
        self.backward = BackwardSink(self.checks)
        self.optimizers = OptimizerSink(self.checks, self.backward)
        self.surroundings = Surroundings(self.checks)
        self.batches = Batches(self.checks)
        self.scripts = Scripts(self.tracer)
        self._patches = Patches()
        self._mode: Any = None
        self._in_inference = False  # when the recorder was put on
        self._is_asleep = False  # switched off, but still there
        self._on_evidence = on_evidence
        self.earlier: Callable[[], Iterable[HistoryRow]] = lambda: ()  # steps not recorded here
        self.on_known_harm: Callable[[], None] = lambda: None  # explained once already
        self._evidence: list[Evidence] = []
        self.waiting = Waiting(self._accept)
        self.checks.before_observed = self._before_observed
        self.optimizers.step_begins = self.waiting.step_begins
        self._harms = 0
        self._is_asking = False

    def start(self) -> None:
        self._put_on()
        if threading.current_thread() is not threading.main_thread():
            self.surroundings.notes.append(
                "torch was first imported in a thread: only that thread and later ones are recorded"
            )

    def _put_on(self) -> None:
        self.modules.install(self._patches, self._outermost_starts, self.outputs.outermost_ends)
        self.backward.on_backward = self._backward_begins
        self.backward.on_gradients = self._gradients_are_there
        self.backward.on_update = self.waiting.step_begins
        self.backward.on_spoilt_leaf = self.waiting.settle
        parts = (
            self.outputs, self.backward, self.optimizers, self.surroundings, self.batches,
            self.scripts,
        )  # fmt: skip
        for part in parts:
            part.install(self._patches)
        if not self._is_asleep:
            self._in_inference = torch.is_inference_mode_enabled()
            self._mode = self.tracer.mode()
            self._mode.__enter__()
        self._is_asleep = False
        self.tracer.active = True

    def pause(self) -> bool:
        """Between two steps: take everything off, so that the program runs at full speed. What
        explains a non-finite value that is still alive is kept. False: not possible just now."""
        self.tracer.put_back()
        if self.outputs.waits_for() or _get_current_dispatch_mode() is not self._mode:
            return False
        self.rest()
        return True

    def rest(self) -> None:
        """The same at any time. Inside an operation the recorder cannot be put away, but does
        nothing from now on; the interpreter tells when the operation is over."""
        self.checks.quietly(lambda: forget(self.tracer, before=self.tracer.next_index))
        self.batches.clear()
        self.modules.let_go()
        self._take_off()
        if self._is_asleep and sys.getprofile() is None:
            sys.setprofile(self._leave_soon)

    def _leave_soon(self, frame: Any, event: str, arg: Any) -> None:
        if _get_current_dispatch_mode() is not None or not self._is_asleep:  # else still inside
            self.leave()
            sys.setprofile(None)

    def resume(self, step: int, *, uses_optimizer: bool) -> None:
        """Record again. What was known of storages may have changed meanwhile: forget it, but
        for what holds a non-finite value."""
        tracer = self.tracer
        tracer.step = step
        tracer.began = True
        tracer.uses_optimizer = uses_optimizer
        tracer.entries = {
            k: e for k, e in list(tracer.entries.items()) if e.tainted and not e.expired()
        }
        tracer.local.leaves.clear()
        tracer.local.made.clear()
        self.checks.shadows.forget()
        tracer.shadowing = bool(self.checks.shadows)
        self._put_on()

    def _take_off(self) -> None:
        self.tracer.active = False
        self._is_asleep = True
        self.leave()
        self._patches.restore()
        self.surroundings.remove()
        self.optimizers.remove()

    def leave(self) -> None:
        """Put a recorder that rests away. Not inside an inference mode that began under it: the end
        of that block would switch torch's key for it on again, with nobody there."""
        mode = _get_current_dispatch_mode()
        if not self._is_asleep or mode is None or mode is not self._mode:
            return  # torch was imported in a thread, or the program has a mode of its own
        if torch.is_inference_mode_enabled() == self._in_inference:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch
            self._is_asleep = False

    def look_at_results(self, names: Mapping[str, Any]) -> None:
        """Single numbers that the block has made and leaves behind, such as a loss that nothing was
        done with; unless there is harm that explains them."""
        if self._evidence or self.outputs.waits_for():
            return
        numbers = [
            (f"the result `{name}`", value)
            for name, value in list(names.items())  # other threads may add some
            if type(value) is torch.Tensor and value.numel() == 1 and value.is_floating_point()
        ]
        entries = [(name, t, self.tracer.entry_of(t)) for name, t in numbers]
        made = [(name, t) for name, t, entry in entries if entry is not None and entry.writers]
        self.checks.quietly(lambda: self.checks.check("output", made, None))

    def stop(self, error: BaseException | None = None) -> None:
        """End the block; `error` is the exception that left it, if one did."""
        try:
            self.tracer.put_back()
            self.checks.quietly(self.waiting.settle)
            if error is None:
                self.checks.quietly(self.outputs.flush)
                self.checks.quietly(self.backward.finish)
            elif not self._evidence:
                self.checks.quietly(lambda: self._raised(error))
                if not self._evidence:
                    self.checks.quietly(lambda: self.waiting.settle_tested(error))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take everything off and let go of it, without a last look."""
        self._take_off()
        self.modules.let_go()
        self.batches.clear()
        self.scripts.clear()
        self.tracer.clear()

    def request_stop(self) -> None:
        """Every thread leaves the program at its next operation."""
        self.tracer.stopping = True

    def _outermost_starts(self, module: torch.nn.Module, args: Any) -> None:
        self.batches.note_inputs(module, args)
        self.outputs.outermost_starts(module, args)

    def _backward_begins(self) -> None:
        self.tracer.put_back()
        self.waiting.backward_begins()
        self.outputs.drop()

    def _gradients_are_there(self, leaves: list[torch.Tensor]) -> None:
        if self.waiting.is_last:
            gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
            self.waiting.spoilt = any(map(self.checks.is_nonfinite, gradients))

    def _raised(self, error: BaseException) -> None:
        harm = harm_of_exception(error, self.tracer, self.checks.is_nonfinite)
        if harm is not None:
            self.checks.harm(harm)

    def _harm(self, harm: Harm) -> None:
        if self._is_asking:
            return
        if harm.is_tested and self.waiting.is_full and not self.outputs.waits_for():
            return
        if self._harms >= MAX_HARMS:
            self.on_known_harm()
            return
        evidence = self.slicer.evidence(harm)
        if evidence is None:
            return
        evidence = self.scripts.placed(evidence)
        self._harms += not harm.is_tested  # what the program deals with hides no harm
        if _place(evidence) in map(_place, self._evidence):
            self.on_known_harm()
            return
        evidence = look_around(evidence, self)
        if harm.may_be_dropped:
            self.waiting.add_loss(evidence)
        elif harm.is_tested:
            self.waiting.add_tested(evidence)
            self._drop_output_of(evidence)
        else:
            self._accept(evidence)

    def _drop_output_of(self, evidence: Evidence) -> None:
        """The program asks for a value that a model's output was made into: that is dealing with it."""
        output = self.outputs.waits_for()
        known = self.slicer.evidence(output) if output is not None else None
        if known is None:
            return
        unseen = known.origin_kind == evidence.origin_kind == "entry"  # made before the recording
        if unseen or _place(self.scripts.placed(known)) == _place(evidence):
            self.outputs.drop()

    def _before_observed(self) -> None:
        self.waiting.settle()
        self.outputs.flush()

    def _accept(self, evidence: Evidence) -> None:
        if _place(evidence) in map(_place, self._evidence):
            self.on_known_harm()
            return
        if not self._evidence:
            self.batches.save(evidence.around.sample)
            evidence = self._with_the_dataset(evidence)
        self._evidence.append(evidence)
        self._on_evidence(evidence)

    def _with_the_dataset(self, evidence: Evidence) -> Evidence:
        self._is_asking = True  # what the dataset shows or reads meanwhile is no harm
        try:
            return with_the_dataset(evidence, self)
        finally:
            self._is_asking = False

    def take_back(self) -> None:
        """As if the last evidence had not been found."""
        self._evidence.pop()
        self._harms -= 1

    def recording(self) -> Recording:
        notes = list(self.surroundings.notes)
        if self.tracer.failures and not self.tracer.broken:
            notes.append(
                f"{self.tracer.failures} operations could not be recorded; "
                f"the last one: {self.tracer.last_failure}"
            )
        if self.tracer.broken:
            notes.append(f"whynan stepped aside after an error of its own: {self.tracer.broken}")
        return Recording(
            evidence=tuple(self._evidence),
            steps=self.tracer.step,
            history=self.backward.history,
            torch_version=torch.__version__,
            notes=tuple(notes),
        )


def _place(evidence: Evidence) -> tuple[object, ...]:
    site = evidence.origin.site
    return (site and (site.file, site.line, site.column), evidence.origin.op)
