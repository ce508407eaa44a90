"""Loss scaling: a skipped step is normal, a scale that collapses is harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from whynan.record.optimizer_sink import COLLAPSED_SCALE, SKIPS_IN_A_ROW
from whynan.record.patches import Patches


class Scaling:
    """Counts the steps that GradScaler skipped in a row."""

    def __init__(self) -> None:
        self.in_use = False
        self.skips = 0
        self.scale: float | None = None
        self._stepped = False

    def install(
        self,
        patches: Patches,
        active: Callable[[], bool],
        collapsed: Callable[[torch.optim.Optimizer], None],
        skipped: Callable[[], None],
    ) -> None:
        def wrap_scale(original: Callable[..., Any]) -> Callable[..., Any]:
            def scale(scaler: Any, outputs: Any) -> Any:
                if active() and scaler.is_enabled():
                    self.in_use = True
                return original(scaler, outputs)

            return scale

        def wrap_step(original: Callable[..., Any]) -> Callable[..., Any]:
            def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                if not active() or not scaler.is_enabled():
                    return original(scaler, optimizer, *args, **kwargs)
                self._stepped = False
                result = original(scaler, optimizer, *args, **kwargs)
                self.skips = 0 if self._stepped else self.skips + 1
                if self.scale is None or self.skips:
                    self.scale = scaler.get_scale()
                if self.skips >= SKIPS_IN_A_ROW and (self.scale or 0.0) <= COLLAPSED_SCALE:
                    collapsed(optimizer)
                if self.skips:
                    skipped()
                return result

            return step

        patches.wrap(torch.amp.GradScaler, "scale", wrap_scale)
        patches.wrap(torch.amp.GradScaler, "step", wrap_step)

    def stepped(self) -> None:
        self._stepped = True
