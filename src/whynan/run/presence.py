"""Whether whynan is there while torch is: from its import on, or the run says that it was not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from whynan import voice
from whynan.errors import StopRun
from whynan.run.after_import import AfterImport
from whynan.seam.supported import is_whole, loaded_torch, refusal

SECOND_TIME = "torch was loaded a second time"
KNOWS_TORCH = ("whynan.seam.", "whynan.record.", "whynan.watching.")


class Presence:
    """Starts the watch when torch has come, and remembers what was in the way.

    `start` is told whether the program may have used torch before; `begin_again` is called each time
    that torch's code has run after that.
    """

    def __init__(self, start: Callable[[bool], None], begin_again: Callable[[], None]) -> None:
        self._start, self._begin_again = start, begin_again
        self._hook = AfterImport("torch", self._torch_has_come, self._torch_is_broken)
        self._has_begun = False
        self.is_refused = False
        self._trouble: str | None = None

    def wait(self) -> None:
        """For torch, which may be there already. Leaves the program if that torch is refused."""
        self._hook.install()

    def end(self) -> None:
        self._hook.remove()

    def after(self, name: str, callback: Callable[[], None]) -> None:
        """For a module that is being imported, and imports torch."""
        self._hook.also(name, callback)

    def lost(self, why: str) -> None:
        """The watch could not begin, or ended before the program did."""
        self._trouble = self._trouble or why

    def absence(self) -> str | None:
        """Why torch was used and not watched; None if it was watched, or not used."""
        if self._trouble is not None:
            return self._trouble
        unwatched = not self._has_begun and not self.is_refused
        if unwatched and loaded_torch() is not None and is_whole():  # a stand-in is not
            return "it was not seen when it was imported"
        return None

    def _torch_is_broken(self) -> None:
        if self._has_begun:
            self.lost(SECOND_TIME)

    def _torch_has_come(self, late: bool) -> None:
        torch = loaded_torch()
        if torch is None:
            return
        if self._has_begun:
            self._begin_again()
            return
        reason = refusal(torch)
        if reason is None:
            self._has_begun = True
            self._start(late)
            return
        if not self.is_refused:
            voice.say(reason)
        self.is_refused = True
        # The import fails; a thread of the program's ends, and nothing is printed for it.
        in_main = threading.current_thread() is threading.main_thread()
        raise StopRun if in_main else SystemExit(2)


def forget_torch() -> None:
    """What of whynan has torch's types in its tables is imported anew when it is needed."""
    for name in [n for n in sys.modules if n.startswith(KNOWS_TORCH)]:
        del sys.modules[name]


def leave_in_silence(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """For `threading.excepthook`: a thread leaves the program by an exception that is no error."""

    def hook(args: Any) -> None:
        if not issubclass(args.exc_type, StopRun):
            original(args)

    return hook
