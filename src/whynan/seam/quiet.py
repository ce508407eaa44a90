"""whynan's own work: no mode of the program sees it, and its errors are not the program's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from whynan.seam import default_device, profiling
from whynan.seam.devices import is_capturing
from whynan.seam.private import (
    current_mode,
    dispatch_modes,
    function_modes,
    function_modes_off,
    modes_off,
    pop_mode,
    push_mode,
    tracing_state,
    transform,
)
from whynan.seam.sites import Frames, capture
from whynan.seam.versions import RecorderMode


def pause() -> Any:
    """Take this thread's recorder off, so that operations run at full speed."""
    return pop_mode() if isinstance(current_mode(), RecorderMode) else None


def resume(mode: Any) -> None:
    """Put back what `pause` took off."""
    if mode is not None:
        push_mode(mode)


@contextmanager
def other_modes_off() -> Iterator[None]:
    """The program's own modes must not see whynan's work."""
    with function_modes_off(), modes_off():
        yield


def is_transformed() -> bool:
    """Whether torch.func is at work, whose tensors stand for many and cannot be read; or
    `torch.jit.trace`, which would write down what whynan computes."""
    return transform() is not None or tracing_state() is not None


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.own = 0  # whynan's own work, or torch printing a tensor: not the program's
        self.depth = 0  # inside an optimizer's step
        self.later: list[Callable[[], None]] = []
        self.paused: Any = None  # the recorder, while whynan works
        self.is_repeating = (
            False  # the program's statements are executed once more: nobody hears it
        )


class Quiet:
    """Runs whynan's own work; `failed` is told of an error in it, and whether to go on after it."""

    def __init__(self, failed: Callable[[BaseException], bool]) -> None:
        self.active = True
        self.on_device = False  # there is an accelerator
        self.captured: Frames | None = None  # where a graph was captured first
        self.broken: str | None = None  # the error after which nothing was looked at any more
        self.local = _PerThread()
        self._failed = failed

    def __call__(self, work: Callable[..., Any], *args: Any) -> Any:
        if not self.active or (self.on_device and self._is_captured()):
            return None
        local = self.local
        local.own += 1
        others = dispatch_modes()
        mode = pause() if others else None
        if mode is not None:
            local.paused = mode
        is_profiled = local.own == 1 and profiling.stop()
        try:
            if (others and dispatch_modes()) or function_modes():
                with other_modes_off():
                    return work(*args)
            return work(*args)
        except Exception as error:
            self._fail(error)
            return None
        finally:
            if is_profiled:
                profiling.go_on()
            if mode is not None:
                push_mode(mode)
                local.paused = None
            local.own -= 1
            if local.later and not local.own:
                self._catch_up()

    def _is_captured(self) -> bool:
        """While a graph is captured, nothing may be computed besides and nobody may wait."""
        if not is_capturing():
            return False
        self.captured = self.captured or capture(sys._getframe(2))
        return True

    def then(self, work: Callable[[], None]) -> None:
        """When whynan's work in this thread is over: a mode cannot come or go in the middle of it."""
        self.local.later.append(work)
        if not self.local.own:
            self._catch_up()

    @contextmanager
    def handed_back(self) -> Iterator[None]:
        """In the middle of whynan's work, the program's own statements are executed once more."""
        local = self.local
        own, depth, local.own, local.depth = local.own, local.depth, 0, 0
        mode, local.paused = local.paused, None
        local.is_repeating = True
        resume(mode)
        try:
            if local.later:
                self._catch_up()
            with default_device.in_force():
                yield
        finally:
            local.is_repeating = False
            if mode is not None and current_mode() is mode:
                pop_mode()
            local.own, local.depth, local.paused = own, depth, mode

    def _catch_up(self) -> None:
        local = self.local
        local.own += 1
        try:
            while local.later:
                local.later.pop(0)()
        except Exception as error:
            self._fail(error)
        finally:
            local.own -= 1

    def _fail(self, error: BaseException) -> None:
        self.active = self._failed(error)
        if not self.active:
            self.broken = f"whynan stepped aside after {error!r}"

    @property
    def is_the_programs(self) -> bool:
        """Whether it is the program that works now, not whynan, an optimizer or torch.func."""
        return self.active and not self.local.own and not self.local.depth and not is_transformed()
