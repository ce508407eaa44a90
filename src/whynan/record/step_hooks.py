"""One pair of hooks around every optimizer's step, for all recorders.

Torch goes through its hooks while they run; one that comes or goes meanwhile, in another thread,
would raise in the program's own `step()`. So they stay while the program has threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

Before = Callable[[Optimizer, Any, Any, Any], Any]  # the last one is the frame of step()
After = Callable[[Optimizer], None]
Listener = tuple[Before, After]


class StepHooks:
    """Who listens; replaced as a whole, so that a thread may go through it at any time."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._handles: list[Any] = []
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)
            if not self._handles:
                self._handles = [
                    register_optimizer_step_pre_hook(self._before),
                    register_optimizer_step_post_hook(self._after),
                ]

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            if not self._listeners and threading.active_count() == 1:
                while self._handles:
                    self._handles.pop().remove()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """What a listener returns are the arguments to use instead."""
        frame, given = sys._getframe(1), None
        for before, _ in self._listeners:
            found = before(optimizer, args, kwargs, frame)
            if found is not None:
                args, kwargs = given = found
        return given

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for _, after in self._listeners:
            after(optimizer)


HOOKS = StepHooks()
