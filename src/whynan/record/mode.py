"""The dispatch mode through which torch shows every operation to the tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from whynan.record.schema import KNOWN, info_of
from whynan.seam.members import run_in_parts
from whynan.seam.private import pop_mode, push_mode
from whynan.seam.versions import RecorderMode

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

PLAIN_TYPES = ((), (torch.Tensor,))
_grad_enabled = torch.is_grad_enabled


class TracerMode(RecorderMode):
    """Hands on what is worth a record."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.tracer = tracer
        # Autograd takes the modes of the thread that called it along into a device's own thread.
        self.local = tracer.local

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        info = KNOWN.get(id(func)) or info_of(func)
        if info.composite:
            return self._in_parts(func, args, kwargs or {})
        if (info.makes_no_node or (info.view and not _grad_enabled())) and types in PLAIN_TYPES:
            return info.call(*args, **kwargs) if kwargs else info.call(*args)
        return self.tracer.dispatch(info, types, args, kwargs or {}, self.local)

    def _in_parts(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Inference mode hands these over whole; autograd would have taken them apart."""
        push_mode(self)
        try:
            return run_in_parts(func, args, kwargs)
        finally:
            pop_mode()
