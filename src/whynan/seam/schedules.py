"""While a batch is repeated or dropped, schedules and averages of the weights stand still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import lr_scheduler, swa_utils

from whynan.seam.patches import Patches


class Schedules:
    """Swallows what a loop does after a step that was not taken.

    Only then is anything replaced: a wrapper would be where torch's warnings say that they come from.
    """

    def __init__(self) -> None:
        self._patches: Patches | None = None

    def go_on(self) -> None:
        if self._patches is not None:
            self._patches.restore()
            self._patches = None

    def stand_still(self) -> None:
        if self._patches is not None:
            return
        self._patches = Patches()
        base = lr_scheduler.LRScheduler
        for kind in (base, *base.__subclasses__()):
            if "step" in vars(kind):
                self._patches.wrap(kind, "step", _swallow)
        self._patches.wrap(swa_utils.AveragedModel, "update_parameters", _swallow)


def _swallow(original: Callable[..., Any]) -> Callable[..., Any]:
    def stand_still(*args: Any, **kwargs: Any) -> None:
        return None

    return stand_still
