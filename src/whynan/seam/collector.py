"""Python's collector of cycles, while a recording makes objects by the hundred thousand.

It looks through everything alive whenever a quarter is new, torch's own 300,000 objects among it: about
half of what it costs to record small operations. So what is there when a recording begins is set
aside until it ends. A program that asks the collector for anything finds everything in its place.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from whynan.seam.patches import Patches

freeze, unfreeze, get_freeze_count = gc.freeze, gc.unfreeze, gc.get_freeze_count

ASKED = ("collect", "get_objects", "get_referrers", "get_freeze_count")
DECIDED = ("freeze", "unfreeze")  # by the program itself


class SetAside:
    """What the collector need not look through, for the length of a recording."""

    def __init__(self) -> None:
        self._is_ours = False

    def begin(self, patches: Patches) -> None:
        for name in ASKED:
            patches.wrap(gc, name, self._with_everything)
        for name in DECIDED:
            patches.wrap(gc, name, self._no_longer_ours)
        patches.on_restore(self._end)
        self.now()

    def now(self) -> None:
        """All that is there by now, unless the program has set something aside by itself."""
        if self._is_ours or not get_freeze_count():
            freeze()
            self._is_ours = True

    def _end(self) -> None:
        if self._is_ours:
            unfreeze()
            self._is_ours = False

    def _with_everything(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            was_ours = self._is_ours
            self._end()
            try:
                return original(*args, **kwargs)
            finally:
                if was_ours:
                    self.now()

        return ask

    def _no_longer_ours(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def decide() -> None:
            self._end()
            original()

        return decide
