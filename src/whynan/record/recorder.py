"""Records a program's operations and explains what it is asked about; it does not judge."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from whynan.model import Evidence, OpRecord
from whynan.record import materials
from whynan.record.around import look_around
from whynan.record.batches import Batches
from whynan.record.checks import Checks
from whynan.record.exceptions import harm_of_exception
from whynan.record.follower import Past, Watcher
from whynan.record.fused import Fused
from whynan.record.harm import Harm
from whynan.record.losses import Losses
from whynan.record.mode import TracerMode
from whynan.record.modules import ModuleNames
from whynan.record.outputs import Outputs, is_for_a_loss
from whynan.record.records import Record
from whynan.record.refusing import harm_of_refusal
from whynan.record.remaking import with_the_dataset
from whynan.record.retention import clear, forget
from whynan.record.scripts import Scripts
from whynan.record.slicing import Slicer
from whynan.record.tracer import HOLD_BYTES, Tracer
from whynan.record.unseen import unseen
from whynan.record.updates import Updates
from whynan.recording import EAGERLY
from whynan.seam import recorded
from whynan.seam.calls import Calls
from whynan.seam.collector import SetAside
from whynan.seam.loading import Fetch, Handed
from whynan.seam.main_thread import in_main_thread
from whynan.seam.patches import Patches
from whynan.seam.private import (
    LoaderIterator,
    current_mode,
    dispatch_modes,
    function_modes,
    has_storage,
)
from whynan.seam.quiet import Quiet
from whynan.seam.reading import local_of
from whynan.seam.sites import Frames, capture
from whynan.seam.tensors import tensors_in
from whynan.seam.versions import run_eagerly

MAX_ORIGINS = 64
IN_A_THREAD = "the recorder was started in a thread: only that thread and later ones are recorded"


class Recorder:
    """`put_on()`, let the program run, `take_off()`; meanwhile `explain` what is asked."""

    def __init__(
        self, watcher: Watcher, quiet: Quiet, history: Past, *, keeps_operands: bool = False
    ) -> None:
        self.quiet = quiet
        self.history = history
        self.calls = Calls(self)
        self.names = ModuleNames()
        hold_bytes = materials.HOLD_BYTES if keeps_operands else HOLD_BYTES
        self.tracer = Tracer(self.calls, quiet, self, hold_bytes=hold_bytes)
        self.calls.special[torch.nn.LSTM] = Fused(self.tracer).call
        self.slicer = Slicer(self.tracer, self.names)
        self.slicer.materials.is_wanted = keeps_operands
        self.checks = Checks(self.tracer, self.names, self.slicer)
        self.outputs = Outputs(self.checks)
        self.losses = Losses(self.checks)
        self.updates = Updates(self.checks)
        self.batches = Batches(self.checks)
        self.scripts = Scripts(self.tracer)
        self.notes: list[str] = []
        self.has_compiled = False  # the program has compiled functions; recorded, they run eagerly
        self._watcher = watcher
        self._patches = Patches()
        self._set_aside = SetAside()
        self._mode: Any = None
        self._mode_of_importer: Any = None  # the thread that imported torch, if not the main one
        self._call: Any = None  # on its way to the main thread
        self._is_asleep = False  # switched off, but still there
        self._stance: Any = None
        self._origins: dict[int, OpRecord] = {}  # by the number of the operation

    # ---- on and off -----------------------------------------------------------------------

    def start(self) -> None:
        self.quiet.then(self.put_on)
        if threading.current_thread() is not threading.main_thread():
            self.notes.append(IN_A_THREAD)

    def start_in_main_thread_too(self) -> None:
        """For a program that has imported torch in another one."""
        if self.tracer.active:
            self._call = in_main_thread(self._put_on_in_main_thread)

    def _put_on_in_main_thread(self) -> None:
        """It may be anywhere, but cannot have used torch yet, nor a mode, unless the import is long
        over: then there is no place for the recorder."""
        if self.tracer.active and not dispatch_modes():
            self._mode_of_importer = self._mode
            self._mode = TracerMode(self.tracer)
            self._mode.__enter__()
            self.notes.remove(IN_A_THREAD)

    def put_on(self) -> None:
        self.calls.install(self._patches)
        recorded.install(self, self._patches)
        self._set_aside.begin(self._patches)
        if self.has_compiled:
            self.run_eagerly()
        if not self._is_asleep:
            self._mode = TracerMode(self.tracer)
            self._mode.__enter__()
        self._is_asleep = False
        self.tracer.on_device = self.quiet.on_device = torch.accelerator.is_available()
        self.tracer.active = True
        self.quiet.clock.records(True)

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
        tracer.local.forget_nodes()
        self.checks.forget()
        self.quiet.then(self.put_on)

    def rest(self) -> None:
        """Take everything off, so that the program runs at full speed; what explains a non-finite
        value that is still alive is kept. Inside an operation the recorder cannot be put away, but
        does nothing from now on; the interpreter tells when the operation is over."""
        forget(self.tracer, before=self.tracer.next_index)
        self.batches.clear()
        self.names.let_go()
        self.outputs.clear()
        self.losses.saw_all = False
        self.tracer.active = False
        self.quiet.then(self.put_away)

    def put_away(self) -> None:
        self._take_off()
        if self._is_asleep and sys.getprofile() is None:
            sys.setprofile(self._leave_soon)

    def _leave_soon(self, frame: Any, event: str, arg: Any) -> None:
        if current_mode() is not None or not self._is_asleep:  # else still inside
            self.leave()
            sys.setprofile(None)

    def _take_off(self) -> None:
        self.tracer.active = False
        self.quiet.clock.records(False)
        self._is_asleep = True
        self.leave()
        self._patches.restore()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def leave(self) -> None:
        """Put a recorder that rests away."""
        mode = current_mode()
        if mode is not None and mode is self._mode_of_importer:
            self._mode = mode  # this thread trains, not the main one
        if not self._is_asleep or mode is None or mode is not self._mode:
            return  # torch was imported in a thread, or the program has a mode of its own
        mode.__exit__(None, None, None)
        self._is_asleep = False

    def abandon(self) -> None:
        """Take everything off and let go of it."""
        self._take_off()
        if (
            sys.getprofile() == self._leave_soon
        ):  # else it would wait until Python itself is torn down
            sys.setprofile(None)
        self.names.let_go()
        self.batches.clear()
        self.scripts.clear()
        self.outputs.clear()
        clear(self.tracer)

    def run_eagerly(self) -> None:
        """Compiled functions would hide their operations."""
        if self._stance is None:
            self._stance = run_eagerly()
            if EAGERLY not in self.notes:
                self.notes.append(EAGERLY)

    # ---- what it is asked -------------------------------------------------------------------

    def explain(self, harm: Harm) -> Evidence | None:
        """Where it began; None when every infinity in it was meant."""
        try:
            self.tracer.later.settle()
            evidence = self.slicer.evidence(harm)
            if evidence is None:
                return None
            evidence = self.scripts.placed(evidence)
        except Exception as error:
            return self._unexplained(harm, error)
        try:
            evidence = look_around(evidence, self)
        except Exception as error:
            self._note(error)
        if evidence.is_from_worker:
            self.batches.keep_dataset()
        # What was seen of it first is most: its operands may have been overwritten since.
        known = self._origins.setdefault(evidence.origin.index, evidence.origin)
        if len(self._origins) > MAX_ORIGINS:
            self._origins.clear()
        return evidence if evidence.origin.index < 0 else replace(evidence, origin=known)

    def _unexplained(self, harm: Harm, error: Exception) -> Evidence:
        """If whynan fails to say where it began, what is certainly harm is harm all the same."""
        is_nan = any(bool(tensor.isnan().any()) for tensor in harm.tensors)
        if not harm.matters and not is_nan:
            raise error
        return unseen(
            harm.sink, harm.subject, harm.step, value=math.nan if is_nan else math.inf,
            frames=harm.frames, why=f"whynan failed when it looked for the origin: {error!r}",
        )  # fmt: skip

    def _note(self, error: Exception) -> None:
        self.notes.append(f"not all is known of it: whynan failed with {error!r}")

    def complete(self, evidence: Evidence) -> Evidence:
        """Of the first harm: keep its batch, and look into the dataset that made it."""
        try:
            self.batches.save(evidence.around.sample)
            return with_the_dataset(evidence, self)
        except Exception as error:
            self._note(error)
            return evidence

    def raised(self, error: BaseException) -> Harm | None:
        """What an exception complains of."""
        self.tracer.later.settle()
        harm = harm_of_exception(error, self.tracer, self.checks.is_nonfinite)
        return harm or harm_of_refusal(error, self.tracer, self.slicer.upstream)

    def results(self, names: Mapping[str, Any]) -> list[Harm]:
        """Single numbers that a block has made and leaves behind, such as a loss that nothing was
        done with."""
        numbers = [
            (f"the result `{name}`", value)
            for name, value in list(names.items())  # other threads may add some
            if type(value) is torch.Tensor and value.numel() == 1 and value.is_floating_point()
        ]
        entries = [(name, t, self.tracer.entry_of(t)) for name, t in numbers]
        made = [(name, t) for name, t, entry in entries if entry is not None and entry.writers]
        return self.checks.bad("output", made, None)

    def step_is_over(self) -> None:
        """Forget a healthy step."""
        self.tracer.end_of_step()
        self.names.let_go()
        self.checks.forget()

    def troubles(self) -> tuple[str, ...]:
        """What a report has to say about the recording itself."""
        tracer, notes = self.tracer, list(self.notes)
        if tracer.failures and not tracer.broken:
            what = f"{tracer.failures} operations could not be recorded"
            notes.append(f"{what}; the last one: {tracer.last_failure}")
        notes += self.quiet.left_alone()
        if tracer.broken:
            notes.append(f"whynan stepped aside after an error of its own: {tracer.broken}")
        return tuple(notes)

    # ---- what it hears ------------------------------------------------------------------------

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        if not self.tracer.will_train and self.tracer.active:
            self._set_aside.now()  # the first one brings in a third of torch
        self.tracer.will_train = True

    def state_loaded(self, optimizer: torch.optim.Optimizer) -> None:
        self.updates.state_loaded(optimizer)

    def file_loaded(self, file: str, obj: Any) -> None:
        self.slicer.files.loaded(file, obj)

    def fetch_begins(self, fetch: Fetch) -> None:
        self.tracer.local.data += 1

    def fetch_ends(self, fetch: Fetch) -> None:
        local, active = self.tracer.local, self.tracer.active
        if not fetch.is_inner:
            local.data = max(0, local.data - 1)
        if fetch.has_ended:
            return
        if isinstance(fetch.iterator, Handed):
            self.batches.handed_on(fetch, recording=active)
        if not isinstance(fetch.iterator, LoaderIterator):
            return
        if active:
            self._enters(fetch.item, capture(fetch.frame))
        self.batches.given(fetch, recording=active)

    def _enters(self, batch: Any, frames: Frames | None) -> None:
        self.tracer.began = True
        for tensor in tensors_in(batch):
            ref = self.tracer.ref(local_of(tensor))
            if ref is not None and not ref.entry.writers:
                ref.entry.entered = frames

    def outermost_begins(self, module: torch.nn.Module, args: Any) -> None:
        self.names.runs(module)
        self.quiet(self._begins, module, args)

    def _begins(self, module: torch.nn.Module, args: Any) -> None:
        self.batches.note_inputs(module, args)
        self.outputs.begins(args)

    def outermost_ends(self, module: torch.nn.Module, output: Any) -> None:
        # By the program's own mode it would be seen that an attribute is asked for.
        if (function_modes() or not is_for_a_loss(output)) and self.quiet.is_the_programs:
            self.quiet(self._ends, module, output, capture(sys._getframe(2)))

    def _ends(self, module: torch.nn.Module, output: Any, frames: Frames | None) -> None:
        self._watcher.output_returned(module, self.outputs.ends(module, output, frames))

    @contextmanager
    def _recording(self) -> Iterator[None]:
        with TracerMode(self.tracer):
            yield

    def in_thread(self) -> Any:
        return self._recording() if self.tracer.active else None

    def tensor_copied(self, tensor: Any, copied: Any) -> None:
        """What is known about the bytes of a deep copy goes along."""
        tensor, copied = local_of(tensor), local_of(copied)
        if not (has_storage(tensor) and has_storage(copied)):
            return
        source, target = self.tracer.ref(tensor), self.tracer.ref(copied)
        if source is None or target is None or source.entry is target.entry:
            return
        target.entry.writers = list(source.entry.writers)
        for name in ("tainted", "partial", "overflowed", "entered"):
            setattr(target.entry, name, getattr(source.entry, name))

    def script_begins(self, function: Any, frame: FrameType) -> Any:
        return self.scripts.begin(function, frame)

    def script_ends(self, call: Any) -> None:
        self.scripts.end(call)

    # ---- what the operations do -----------------------------------------------------------------

    def absorbed(self, record: Record) -> None:
        """A finite result out of a non-finite input: the program dealt with it, rightly or not."""
        if any(ref.entry.overflowed for ref in record.tainted_in or ()):
            self.tracer.shadowing = True
        cleaned = self.outputs.cleaned_by(record)
        if cleaned:
            self._watcher.outputs_cleaned(cleaned)

    def shadowed(self, record: Record) -> None:
        self.checks.follow(record)

    def stepped_aside(self, error: BaseException) -> None:
        self._watcher.recorder_failed(error)

    def outliving(self, record: Record) -> None:
        self.slicer.freeze(record)

    def generator_used(self, generator: torch.Generator) -> None:
        self._watcher.generator_used(generator)

    def leaves_updated(self) -> None:
        """A hand-written update is complete."""
        self.names.let_go()
        self.quiet(lambda: self._watcher.leaves_updated(self.losses.spoilt_leaves()))

    def average_spoilt(self, parameters: Sequence[torch.Tensor]) -> None:
        """A NaN was written into weights that no gradient reaches."""
        self.quiet(lambda: self._watcher.average_spoilt(self.updates.spoilt_averages(parameters)))

    def operations_are_many(self) -> None:
        self.quiet(self._watcher.operations_are_many)
