"""How far the training has come: steps, optimizers, threads, the loss scale."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from whynan.seam.optimizers import Optimizer

SKIPS_IN_A_ROW = 8
COLLAPSED_SCALE = 256.0  # eight halvings of torch's own starting scale


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


class Progress:
    """`step` is the number of the one that is being made."""

    def __init__(self) -> None:
        self.step = 0
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.uses_optimizer = False
        self.scaling = Scaling()
        self._threads: set[int] = set()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.uses_optimizer = True
        self.optimizers.add(optimizer)

    def step_begins(self) -> None:
        self.uses_optimizer = True
        self._threads.add(threading.get_ident())

    def is_in_main_thread_alone(self) -> bool:
        """Here and now, and in every step so far."""
        me = threading.get_ident()
        return me == threading.main_thread().ident and self._threads <= {me}
