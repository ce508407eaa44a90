"""What surrounds the computation: data loaders, threads, forks and compiled functions."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from whynan.errors import StopRun
from whynan.record.checks import Checks, tensors_in
from whynan.record.patches import Patches
from whynan.record.sites import Frames, beyond_own, capture, is_torch_file

_alive: weakref.WeakSet[Surroundings] = weakref.WeakSet()


def _after_fork() -> None:
    for surroundings in list(_alive):
        surroundings.forked()


os.register_at_fork(after_in_child=_after_fork)  # once: it can never be taken back


class Surroundings:
    """Carries the recorder into threads, out of forks, and knows where batches come in."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.notes: list[str] = []
        self.compiled = False  # the program has compiled functions; recorded, they run eagerly
        self._stance: Any = None

    def install(self, patches: Patches) -> None:
        if self.compiled:
            self._run_eagerly()
        patches.wrap(torch, "compile", self._wrap_compile)
        loader = torch.utils.data.dataloader._BaseDataLoaderIter
        patches.wrap(loader, "__next__", self._wrap_loader)
        patches.wrap(threading.Thread, "_bootstrap_inner", self._wrap_thread)
        patches.wrap(torch.Tensor, "__deepcopy__", self._wrap_deepcopy)
        _alive.add(self)

    def remove(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def forked(self) -> None:
        """In a forked child nothing is recorded."""
        self.tracer.active = False

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
            # torch.cond and others compile for themselves; they must be left alone.
            caller = beyond_own(sys._getframe(1)).f_code.co_filename
            by_user = not is_torch_file(caller) or caller.endswith("nn/modules/module.py")
            if by_user and self._stance is None and self.tracer.active:
                self._run_eagerly()
            return original(*args, **kwargs)

        return compile_eagerly

    def _run_eagerly(self) -> None:
        self._stance = torch.compiler.set_stance("force_eager")
        note = "torch.compile was in use; the traced run executed it eagerly"
        if note not in self.notes:
            self.notes.append(note)

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

    def _wrap_deepcopy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A deep copy moves bytes behind torch's back; what is known about them goes along."""

        def deepcopy(tensor: Any, memo: Any) -> Any:
            self.tracer.local.busy += 1
            try:
                copied = original(tensor, memo)
            finally:
                self.tracer.local.busy -= 1
            self.checks.quietly(lambda: self._copy_knowledge(tensor, copied))
            return copied

        return deepcopy

    def _copy_knowledge(self, tensor: Any, copied: Any) -> None:
        if not (torch._C._has_storage(tensor) and torch._C._has_storage(copied)):
            return
        source, target = self.tracer.ref(tensor), self.tracer.ref(copied)
        if source is None or target is None or source.entry is target.entry:
            return
        target.entry.writers = list(source.entry.writers)
        for name in ("tainted", "partial", "overflowed", "entered"):
            setattr(target.entry, name, getattr(source.entry, name))

    def _wrap_thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bootstrap(thread: threading.Thread) -> Any:
            if self.tracer.active:
                run = thread.run

                def traced() -> None:
                    with self.tracer.mode():
                        try:
                            with suppress(StopRun):
                                run()
                        finally:
                            self.tracer.put_back()

                thread.run = traced  # type: ignore[method-assign]  # this thread only
            return original(thread)

        return bootstrap
