"""A harm as the recorder sees it: a bad value at a sink."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from whynan.model import Evidence, Scalar, Sink
from whynan.record.records import Record
from whynan.seam.sites import Frames

GRADIENT_OF = "gradient of "


@dataclass(slots=True)
class Harm:
    """A non-finite value at a sink, before anyone knows where it came from."""

    sink: Sink
    subject: str
    tensors: list[torch.Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the tensors, where they differ
    frames: Frames | None = None
    record: Record | None = None  # the operation that raised, or that absorbed an overflow
    known: Evidence | None = None  # where it began, when that was seen earlier
    message: str | None = None
    effect: str | None = None
    parameter: str | None = None
    hyper: dict[str, Scalar] = field(default_factory=dict)
    step: int = 0
    is_buffer: bool = False
    is_state: bool = False  # of an optimizer; it may start at an infinity

    @property
    def matters(self) -> bool:
        """Training stands on it; a mask that is printed, saved or kept in a buffer is no harm."""
        trains = self.sink in ("loss", "gradient", "parameter")
        return trains and not self.is_buffer and not self.is_state
