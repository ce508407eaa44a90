"""What surrounds the operations of a program that is recorded: threads, copies, scripts, profilers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import Any, Protocol

import torch
from torch.autograd.profiler import record_function

from whynan.errors import StopRun
from whynan.seam.patches import Patches
from whynan.seam.private import ScriptFunction, ScriptMethod
from whynan.seam.quiet import Quiet, pause, resume


class Recorded(Protocol):
    """Who records."""

    quiet: Quiet

    def in_thread(self) -> AbstractContextManager[Any] | None: ...
    def tensor_copied(self, tensor: Any, copied: Any) -> None: ...
    def script_begins(self, function: Any, frame: FrameType) -> Any: ...
    def script_ends(self, call: Any) -> None: ...


def install(recorder: Recorded, patches: Patches) -> None:
    around = _Around(recorder)
    patches.wrap(threading.Thread, "_bootstrap_inner", around.wrap_thread)
    patches.wrap(torch.Tensor, "__deepcopy__", around.wrap_deepcopy)
    for owner in (ScriptFunction, ScriptMethod):
        patches.wrap(owner, "__call__", around.wrap_script)
    for name in ("__enter__", "__exit__"):  # around each `step()`, for a profiler
        patches.wrap(record_function, name, around.wrap_mark)


class _Around:
    def __init__(self, recorder: Recorded) -> None:
        self._recorder = recorder
        self._quiet = recorder.quiet

    def wrap_thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A thread has modes of its own: the recorder goes along."""

        def bootstrap(thread: threading.Thread) -> Any:
            block = self._recorder.in_thread()
            if block is not None:
                run = thread.run

                def traced() -> None:
                    with block, suppress(StopRun):
                        run()

                thread.run = traced  # type: ignore[method-assign]  # this thread only
            return original(thread)

        return bootstrap

    def wrap_deepcopy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A deep copy moves bytes behind torch's back."""

        def deepcopy(tensor: Any, memo: Any) -> Any:
            self._quiet.local.own += 1
            try:
                copied = original(tensor, memo)
            finally:
                self._quiet.local.own -= 1
            self._quiet(self._recorder.tensor_copied, tensor, copied)
            return copied

        return deepcopy

    def wrap_script(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(function: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._recorder.script_begins(function, sys._getframe(1))
            try:
                return original(function, *args, **kwargs)
            finally:
                self._recorder.script_ends(call)

        return run

    def wrap_mark(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mark(*args: Any) -> Any:
            mode = pause() if self._quiet.active else None
            try:
                return original(*args)
            finally:
                resume(mode)

        return mark
