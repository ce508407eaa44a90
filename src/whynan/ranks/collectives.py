"""The program's own exchanges: what was called last, and whether something bad was sent."""

from __future__ import annotations

import os
from types import FrameType
from typing import Any

from torch import distributed as dist

from whynan.model import Evidence
from whynan.record.harm import Harm
from whynan.record.recorder import Recorder
from whynan.seam.effects import Outside
from whynan.seam.sites import Frames, capture, is_torch_file
from whynan.seam.tensors import bad_values, tensors_in


class Collectives:
    """Hears of every exchange."""

    def __init__(self, recorder: Recorder) -> None:
        self.everyone = False  # the program itself called an exchange of the whole job
        self.in_parts = False  # or one of some ranks of it
        self.last: str | None = None
        self.sent: Evidence | None = None  # where the first bad value that left this rank began
        self.own = False  # whynan's own exchange
        self.apart = False  # nothing is exchanged now
        self._recorder = recorder

    def waits(self) -> None:
        if self.apart:
            raise Outside

    def begins(self, name: str, sent: Any, group: Any, frame: FrameType) -> bool:
        """Whether it is to happen."""
        if self.own:
            return True
        if not is_torch_file(frame.f_code.co_filename):
            file = os.path.basename(frame.f_code.co_filename)
            self.last = f"{name} at {file}:{frame.f_lineno}"
            whole = group in (None, dist.group.WORLD)
            self.everyone |= whole
            self.in_parts |= not whole
        if self.sent is None and self._recorder.tracer.active:
            self._recorder.quiet(self._look, name, sent, capture(frame))
        if self.apart and name != "all_reduce":
            raise Outside
        return not self.apart

    def _look(self, name: str, sent: Any, frames: Frames | None) -> None:
        """While the recorder is on, it still knows how a value came about that is now sent."""
        for values in map(bad_values, tensors_in(sent)):
            if values is not None:
                harm = Harm(
                    sink="gradient",
                    subject=f"what {name} sends to the other ranks",
                    tensors=[values],
                    frames=frames,
                    step=self._recorder.tracer.step,
                )
                self.sent = self._recorder.slicer.evidence(harm)
                return
