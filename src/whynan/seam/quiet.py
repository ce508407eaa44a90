"""whynan's own work: no mode of the program sees it, and its errors are not the program's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
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
from whynan.seam.sites import Frames, capture, site_of
from whynan.seam.versions import RecorderMode

MOSTLY = 0.8  # of the time
CAPTURED = "what was captured as a graph is not looked into, nor what its replays compute"


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


class Clock:
    """How long the program has waited for whynan at its events; not while it was recorded, where its
    own work cannot be told from whynan's."""

    def __init__(self) -> None:
        self.began_ns = perf_counter_ns()
        self.own_ns = 0
        self._recorded_ns = 0
        self.recorded_since_ns: int | None = None

    def records(self, on: bool) -> None:
        """The recorder is put on or off."""
        now = perf_counter_ns()
        if self.recorded_since_ns is not None:
            self._recorded_ns += now - self.recorded_since_ns
        self.recorded_since_ns = now if on else None

    def share(self) -> float | None:
        """Of the time in which nothing was recorded; None where that was too little to tell."""
        self.records(False)
        whole = perf_counter_ns() - self.began_ns
        guarded = whole - self._recorded_ns
        return self.own_ns / guarded if guarded > MOSTLY * whole else None


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
        self.clock = Clock()
        self._failed = failed

    def __call__(self, work: Callable[..., Any], *args: Any) -> Any:
        if not self.active or (self.on_device and self._is_captured()):
            return None
        local = self.local
        local.own += 1
        began_ns = perf_counter_ns() if local.own == 1 else 0
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
            if began_ns and self.clock.recorded_since_ns is None:
                self.clock.own_ns += perf_counter_ns() - began_ns

    def left_alone(self) -> list[str]:
        """What nobody looked at because a graph was captured."""
        if self.captured is None:
            return []
        site = site_of(self.captured)
        return [f"{CAPTURED} ({os.path.basename(site.file)}, line {site.line})"]

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
