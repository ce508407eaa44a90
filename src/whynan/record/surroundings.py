"""What surrounds the computation: data loaders, threads, forks and compiled functions."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from whynan.errors import StopRun
from whynan.record.checks import Checks, tensors_in
from whynan.record.patches import Patches
from whynan.record.sites import Frames, capture


class Surroundings:
    """Carries the recorder into threads, out of forks, and knows where batches come in."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.notes: list[str] = []
        self._stance: Any = None
        self._pid = os.getpid()

    def install(self, patches: Patches) -> None:
        patches.wrap(torch, "compile", self._wrap_compile)
        loader = torch.utils.data.dataloader._BaseDataLoaderIter
        patches.wrap(loader, "__next__", self._wrap_loader)
        patches.wrap(threading.Thread, "_bootstrap_inner", self._wrap_thread)
        os.register_at_fork(after_in_child=self._forked)

    def remove(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def _forked(self) -> None:
        self.tracer.active = False

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
            if self._stance is None and self.tracer.active:
                self._stance = torch.compiler.set_stance("force_eager")
                self.notes.append("torch.compile was in use; the traced run executed it eagerly")
            return original(*args, **kwargs)

        return compile_eagerly

    def _wrap_loader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any) -> Any:
            local = self.tracer.local
            frames = capture(sys._getframe(1))
            local.data += 1
            try:
                batch = original(iterator)
            finally:
                local.data -= 1
            self.checks.quietly(lambda: self._batch_enters(batch, frames))
            return batch

        return fetch

    def _batch_enters(self, batch: Any, frames: Frames | None) -> None:
        self.tracer.began = True
        for tensor in tensors_in(batch):
            ref = self.tracer.ref(tensor)
            if ref is not None and not ref.entry.writers:
                ref.entry.entered = frames

    def _wrap_thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bootstrap(thread: threading.Thread) -> Any:
            if self.tracer.active:
                run = thread.run

                def traced() -> None:
                    with self.tracer.mode(), suppress(StopRun):
                        run()

                thread.run = traced  # type: ignore[method-assign]  # this thread only
            return original(thread)

        return bootstrap
