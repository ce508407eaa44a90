"""What the outermost module returns while the program is recorded, and whether it is dealt with."""

from __future__ import annotations

from typing import Any

import torch

from whynan.ops.table import that
from whynan.record.checks import Checks
from whynan.record.harm import Harm
from whynan.record.records import Record
from whynan.seam.private import storage_id
from whynan.seam.reading import local_of, readable
from whynan.seam.sites import Frames
from whynan.seam.stats import is_only_below
from whynan.seam.tensors import tensors_in

# Operations by which a program looks for non-finite values itself.
LOOKS = that("asks") | {"ne", "eq"}


class Outputs:
    """The bad outputs that nobody has dealt with yet, by the model that returned them."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self._waiting: dict[int, set[int]] = {}  # the storages of each model's last bad output

    def begins(self, args: Any) -> None:
        """What goes into the outermost module is its input."""
        self.checks.tracer.began = True
        for tensor in tensors_in(args):
            entry = self.checks.tracer.entry_of(local_of(tensor))
            if entry is not None:
                entry.model_input = True

    def ends(self, module: Any, output: Any, frames: Frames | None) -> list[Harm]:
        """What is bad or wrong in an output that no loss will be made of."""
        values = [readable(t) for t in tensors_in(output) if not t.requires_grad]
        free = [v for v in values if v is not None]
        # -inf alone is mostly meant; it counts where the program uses it.
        bad = [t for t in free if self.checks.is_nonfinite(t) and not is_only_below(t)]
        subject = f"output of {type(module).__name__}"
        self._waiting.pop(id(module), None)
        if not bad:
            return self.checks.wrong("output", [(subject, t) for t in free], frames)
        self._waiting[id(module)] = {storage_id(t) for t in bad[:4]}
        return [
            Harm(
                sink="output", subject=subject, tensors=bad[:4],
                frames=frames, step=self.checks.tracer.step,
            )
        ]  # fmt: skip

    def cleaned_by(self, record: Record) -> list[int]:
        """The models whose bad output this operation made a finite result of, or tested."""
        if not self._waiting:
            return []
        deals = record.info.base in LOOKS or any(o.dtype.is_floating_point for o in record.outs)
        read = {ref.entry.cdata for ref in record.tainted_in or ()}
        cleaned = [m for m, made in self._waiting.items() if deals and made & read]
        for model in cleaned:
            del self._waiting[model]
        return cleaned

    @property
    def is_waiting(self) -> bool:
        """Whether one is still to be dealt with."""
        return bool(self._waiting)

    def clear(self) -> None:
        self._waiting.clear()


def is_for_a_loss(output: Any) -> bool:
    """A loss will be made of it, and decides."""
    return type(output) is torch.Tensor and output.requires_grad
