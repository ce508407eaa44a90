"""What the program gets out: the outermost module's output, and values it reads, prints or saves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from whynan.record.checks import Checks, saved_tensors, tensors_in
from whynan.record.patches import Patches
from whynan.record.records import Record
from whynan.record.sites import Frames, beyond_own, capture, is_torch_file, users_own
from whynan.record.slicing import Harm
from whynan.record.stats import is_only_below
from whynan.record.storages import storage_id

READERS = {
    "numpy": "array handed to NumPy",
    "__array__": "array handed to NumPy",
    "tolist": "list read by tolist()",
    "__repr__": "printed tensor",
    "__format__": "printed tensor",
}
TRANSPARENT = ("torch/_tensor.py", "torch/utils/_python_dispatch.py")
# Operations by which a program looks for non-finite values itself.
LOOKS = frozenset({"isnan", "isinf", "isfinite", "ne", "eq", "isposinf", "isneginf"})


def savers() -> list[tuple[Any, str]]:
    """What programs write weights to files with: functions that are given a nest of tensors."""
    found: list[tuple[Any, str]] = [(torch, "save")]
    try:
        import safetensors.torch
    except ImportError:
        return found
    # Both ways to save come through here, also where a program imported them by name.
    inner = [n for n in ("_flatten", "_flatten_as_ptr") if hasattr(safetensors.torch, n)]
    return found + [(safetensors.torch, name) for name in inner]


class OutputSink:
    """A module's output waits: what the program cleans, or turns into a loss, is no harm yet."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self._pending: Harm | None = None
        self._pending_of = 0  # the module that returned it
        self.tracer.on_read_out = self._item
        self.tracer.on_absorbed = self._absorbed

    def install(self, patches: Patches) -> None:
        for name in READERS:
            patches.wrap(torch.Tensor, name, self._wrap_reader)
        patches.wrap(torch.nn.Parameter, "__repr__", self._wrap_reader)
        for owner, name in savers():
            patches.wrap(owner, name, self._wrap_save)

    # ---- module output --------------------------------------------------------------

    def outermost_starts(self, module: torch.nn.Module, args: Any) -> None:
        self.tracer.began = True
        for tensor in tensors_in(args):
            entry = self.tracer.entry_of(tensor)
            if entry is not None:
                entry.model_input = True
        if self._pending is not None and self._pending_of == id(module):
            self.checks.quietly(self.flush)

    def outermost_ends(self, module: torch.nn.Module, output: Any) -> None:
        is_seen = (
            torch._C._len_torch_function_stack()
        )  # by the program's own mode, if it were asked
        if type(output) is torch.Tensor and not is_seen and output.requires_grad:
            return  # a loss will be made of it
        frames = capture(sys._getframe(2))
        self.checks.quietly(lambda: self._look(module, output, frames))

    def wait_for(self, module: torch.nn.Module, output: Any) -> None:
        """An output that is known to be bad, of a call that was not recorded."""
        self._look(module, output, capture(sys._getframe(1)))

    def _look(self, module: Any, output: Any, frames: Frames | None) -> None:
        tensors = tensors_in(output)
        free = [t for t in tensors if not t.requires_grad]
        # -inf alone is mostly meant; it counts where the program uses it.
        bad = [t for t in free if self.checks.is_nonfinite(t) and not is_only_below(t)]
        self.checks.check_right(
            "output", [(f"output of {type(module).__name__}", t) for t in free], frames
        )
        if bad:
            self._pending_of = id(module)
            self._pending = Harm(
                sink="output",
                subject=f"output of {type(module).__name__}",
                tensors=[t.detach() for t in bad[:4]],
                frames=frames,
            )

    def flush(self) -> None:
        """Nobody dealt with it: now it counts."""
        harm, self._pending = self._pending, None
        if harm is not None:
            self.checks.harm(harm)

    def waits_for(self) -> Harm | None:
        """The output that is still to be judged."""
        return self._pending

    def drop(self) -> None:
        """A loss is being made of it: the loss decides."""
        self._pending = None

    def _absorbed(self, record: Record) -> None:
        """A finite result out of a non-finite input: the program dealt with it, rightly or not."""
        if any(ref.entry.overflowed for ref in record.tainted_in or ()):
            self.tracer.shadowing = True
        harm = self._pending
        if harm is None:
            return
        deals = record.info.base in LOOKS or any(o.dtype.is_floating_point for o in record.outs)
        storages = {storage_id(t) for t in harm.tensors}
        if deals and any(ref.entry.cdata in storages for ref in record.tainted_in or ()):
            self._pending = None

    # ---- values read out ------------------------------------------------------------

    def _item(self, record: Record, value: Any) -> None:
        if not isinstance(value, (float, complex)):
            return
        if value - value == 0 and not self.checks.shadows:
            return
        frame = sys._getframe(1)
        frame = beyond_own(frame)
        while frame.f_back is not None and frame.f_code.co_filename.endswith(TRANSPARENT):
            frame = beyond_own(frame.f_back)
        if record.frames is None or frame.f_code is not record.frames.code:
            return  # torch reads it for its own purposes
        tensor = record.args[0].tensor()
        if tensor is not None:
            subject = "value read by item()"
            self.checks.quietly(lambda: self._observed(subject, tensor, record.frames))

    def _observed(self, subject: str, tensor: torch.Tensor, frames: Frames | None) -> None:
        self.checks.check("observed", [(subject, tensor)], frames)
        self.checks.check_right("observed", [(subject, tensor)], frames)

    def _wrap_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        subject = READERS[original.__name__]

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            local = self.tracer.local
            if local.busy or not self.tracer.active:
                return original(tensor, *args, **kwargs)
            caller = beyond_own(sys._getframe(1))
            frames = None if is_torch_file(caller.f_code.co_filename) else capture(caller)
            if frames is not None and torch._C._has_storage(tensor):
                self.checks.quietly(lambda: self._observed(subject, tensor, frames))
            local.busy += 1  # formatting is torch's work, not the program's
            try:
                return original(tensor, *args, **kwargs)
            finally:
                local.busy -= 1

        return read

    def _wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            frames = users_own(capture(sys._getframe(1)))
            named = [("saved tensor", t) for t in saved_tensors(obj)]
            self.checks.quietly(lambda: self.checks.check("observed", named, frames))
            return original(obj, *args, **kwargs)

        return save
