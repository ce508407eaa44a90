"""While a batch is repeated or dropped, schedules and averages of the weights stand still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import lr_scheduler, swa_utils

from whynan.record.patches import Patches


class Schedules:
    """Swallows what a loop does after a step that was not taken."""

    def __init__(self) -> None:
        self.on = True

    def install(self, patches: Patches) -> None:
        base = lr_scheduler.LRScheduler
        for kind in (base, *base.__subclasses__()):
            if "step" in vars(kind):
                patches.wrap(kind, "step", self._wrap)
        patches.wrap(swa_utils.AveragedModel, "update_parameters", self._wrap)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def go_on(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if self.on else None

        return go_on
