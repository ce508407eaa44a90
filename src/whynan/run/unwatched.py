"""Processes that train where nobody looks: that much is known, and said."""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from collections.abc import Callable

from whynan.seam.supported import is_whole, loaded_torch

REMARK = (
    "a process that the script started has trained a model and was not watched: what went wrong "
    "there, if anything did, is not known; `with whynan.watch():` around its training looks at it"
)
_alive: weakref.WeakSet[Forked] = weakref.WeakSet()


def _after_fork() -> None:
    for forked in list(_alive):
        with contextlib.suppress(Exception):  # a worker runs, whatever becomes of this
            forked.begins()


os.register_at_fork(after_in_child=_after_fork)  # once: it can never be taken back


class Forked:
    """Whether a forked process trained: it leaves a mark in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._mark = mmap.mmap(-1, 1)
        self._forget: Callable[[], None] | None = None
        _alive.add(self)

    @property
    def trained(self) -> bool:
        return self._mark[0] != 0

    def begins(self) -> None:
        """In the process itself."""
        if loaded_torch() is not None and is_whole():
            from whynan.seam.training import at_first_step

            self._forget = at_first_step(self._leave_mark)

    def is_watched(self) -> None:
        """In the process itself: it has a watch of its own, or waits for one."""
        if self._forget is not None:
            self._forget()

    def _leave_mark(self) -> None:
        self._mark[0] = 1
