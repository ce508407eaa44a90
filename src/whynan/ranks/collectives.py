"""The program's own exchanges: what was called last, and whether something bad was sent."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d

from whynan.model import Evidence
from whynan.record.checks import PLAIN, Checks, tensors_in
from whynan.record.patches import Patches
from whynan.record.sites import Frames, beyond_own, capture, is_torch_file
from whynan.record.slicing import Harm
from whynan.record.stats import has_nonfinite

# Each with the argument that is sent; torch 2.13 added the `_single` forms, which FSDP2 calls.
SENT = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "reduce_scatter": "input_list",
    "reduce_scatter_tensor": "input",
    "reduce_scatter_single": "input",
    "all_to_all": "input_tensor_list",
    "all_to_all_single": "input",
    "send": "tensor",
}


class Collectives:
    """Wraps `torch.distributed`'s functions."""

    def __init__(self, checks: Checks) -> None:
        self.everyone = False  # an exchange of the whole job was called by the program itself
        self.last: str | None = None
        self.sent: Evidence | None = None  # where the first bad value that left this rank began
        self.own = False  # whynan's own exchange
        self._checks = checks
        self._depth = 0

    def install(self, patches: Patches) -> None:
        for module in (distributed_c10d, dist):
            for name in SENT:
                if hasattr(module, name):
                    patches.wrap(module, name, self._wrap)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        name = original.__name__
        signature = inspect.signature(original)

        def collective(*args: Any, **kwargs: Any) -> Any:
            if self.own or self._depth:
                return original(*args, **kwargs)
            frame = beyond_own(sys._getframe(1))
            if not is_torch_file(frame.f_code.co_filename):
                file = os.path.basename(frame.f_code.co_filename)
                self.last = f"{name} at {file}:{frame.f_lineno}"
                self.everyone |= kwargs.get("group") in (None, dist.group.WORLD)
            if self.sent is None and self._checks.tracer.active:
                given = signature.bind_partial(*args, **kwargs).arguments.get(SENT.get(name, ""))
                frames = capture(sys._getframe(1))
                self._checks.quietly(lambda: self._look(name, given, frames))
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return collective

    def _look(self, name: str, given: Any, frames: Frames | None) -> None:
        """While the recorder is on, it still knows how a value came about that is now sent."""
        for tensor in tensors_in(given):
            plain = type(tensor).__torch_dispatch__ in PLAIN and tensor.layout is torch.strided
            if plain and tensor.is_floating_point() and has_nonfinite(tensor.detach()):
                harm = Harm(
                    sink="gradient",
                    subject=f"what {name} sends to the other ranks",
                    tensors=[tensor.detach()],
                    frames=frames,
                    step=self._checks.tracer.step,
                )
                self.sent = self._checks.explain(harm)
                return
