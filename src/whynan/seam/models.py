"""Models that are called, cast, compiled or given buffers, as events."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from whynan.seam.compiling import has_compiled, leave_own_alone
from whynan.seam.events import Events
from whynan.seam.members import hook_alone, unhook
from whynan.seam.patches import Patches
from whynan.seam.private import MODULE_CALL, dispatch_modes, hooks_after, hooks_before
from whynan.seam.quiet import pause, resume
from whynan.seam.sites import beyond_own, is_torch_file

NARROW = (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


def install(events: Events, patches: Patches) -> None:
    without = _WithoutGradients(events)
    for name in ("__enter__", "__exit__"):
        patches.wrap(torch.inference_mode, name, _without_the_recorder)
    for block in (torch.no_grad, torch.inference_mode):
        patches.wrap(block, "__enter__", without.wrap_enter)
        patches.wrap(block, "__exit__", without.wrap_exit)
    for name in ("__init__", "__call__"):
        patches.wrap(torch.set_grad_enabled, name, without.wrap_switch)
    for name in ("__enter__", "__exit__"):
        patches.after(torch.set_grad_enabled, name, without.look)
    without.look()
    patches.on_restore(without.remove)
    casts = _Casts(events)
    patches.wrap(nn.Module, "half", casts.wrap_half)
    patches.wrap(nn.Module, "to", casts.wrap_to)
    patches.wrap(torch, "compile", partial(_wrap_compile, events, without, patches))
    leave_own_alone(patches)
    if has_compiled():
        _hear_of_compiling(events, without)
    for name in ("register_buffer", "__setstate__"):  # the latter out of a copy or a file
        patches.after(nn.Module, name, partial(events.tell, "buffers_made"))


def _without_the_recorder(original: Callable[..., Any]) -> Callable[..., Any]:
    """The end of an inference mode puts torch's key for the recorder back as it was at its begin: it must
    have been off, whether the recorder comes or goes meanwhile."""

    def switch(*args: Any) -> Any:
        mode = pause() if dispatch_modes() else None
        try:
            return original(*args)
        finally:
            resume(mode)

    return switch


class _Local(threading.local):
    def __init__(self) -> None:
        self.blocks = 0  # nested blocks without gradients
        self.is_off = False  # the program has switched gradients off outside of any block
        self.depth = 0  # nested calls of modules that are heard of
        self.alone: Any = None  # the outermost one, while it is the only one that is


class _WithoutGradients:
    """The outermost module's output where there are no gradients. Global module hooks are there only
    then: every module call would pay for them in training, where the loss tells all. While the outermost
    module runs, hooks of its own take their place, so that its parts pay nothing; but not while several
    threads are without gradients, as the global ones are those of all."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._local = _Local()
        self._key = id(self)
        self._wanted = True
        self._inside: set[int] = set()  # threads

    def give_up(self) -> None:
        """For good: a compiler would warn of the hooks and take them into its graphs."""
        self._wanted = False
        self.remove()

    def remove(self) -> None:
        hooks_before.pop(self._key, None)
        hooks_after.pop(self._key, None)

    def _put(self) -> None:
        if self._wanted:
            hooks_before[self._key] = self._enter
            hooks_after[self._key] = self._leave

    def look(self, *_: Any) -> None:
        """Whether the program has switched gradients off or on, outside of any block."""
        local = self._local
        is_off = not torch.is_grad_enabled()
        if local.blocks or is_off == local.is_off:
            return
        local.is_off = is_off
        if is_off:
            self._begin()
        else:
            self._end()

    def _begin(self) -> None:
        if self._wanted:
            self._forget_call()
            self._inside.add(threading.get_ident())
            self._put()

    def _end(self) -> None:
        self._forget_call()
        self._inside.discard(threading.get_ident())
        if not self._inside:
            self.remove()

    def wrap_switch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """That of torch's own optimizers lasts as long as their steps."""

        def switch(block: Any, *args: Any, **kwargs: Any) -> Any:
            given = original(block, *args, **kwargs)
            if not self._local.blocks and not is_torch_file(sys._getframe(1).f_code.co_filename):
                self.look()
            return given

        return switch

    def wrap_enter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(block: Any) -> Any:
            local = self._local
            if not (local.blocks or local.is_off):
                self._begin()
            local.blocks += 1
            return original(block)

        return enter

    def wrap_exit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(block: Any, *error: Any) -> Any:
            local = self._local
            local.blocks = max(0, local.blocks - 1)
            if not (local.blocks or local.is_off):
                self._end()
            return original(block, *error)

        return leave

    def _forget_call(self) -> None:
        """One that was interrupted has not been left."""
        local = self._local
        local.depth = 0
        if local.alone is not None:
            unhook(local.alone, self._key)
            local.alone = None

    def _enter(self, module: Any, args: Any) -> None:
        local = self._local
        if local.alone is not None and local.alone is not module:
            return
        local.depth += 1
        if local.depth > 1:
            return
        if self._events.quiet.is_the_programs and not torch.is_grad_enabled():
            frame = sys._getframe(1)
            self._events.tell("model_begins", args, frame.f_locals.get("kwargs"), frame)
        if len(self._inside) == 1:
            self.remove()
            hook_alone(module, self._key, self._enter, self._leave)
            local.alone = module

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        local = self._local
        if not local.depth or (local.alone is not None and local.alone is not module):
            return
        local.depth -= 1
        if local.depth:
            return
        if local.alone is not None:
            unhook(module, self._key)
            local.alone = None
            self._put()
        without = local.blocks or local.is_off
        if output is None or not without or not self._events.quiet.is_the_programs:
            return  # None: it raised
        if not torch.is_grad_enabled() and not _is_part_of_another():  # else a closure in step()
            self._events.tell("model_returned", module, output, sys._getframe(1))
        else:
            self._events.tell("model_called", module)


def _is_part_of_another() -> bool:
    """Whether the module that is running was called by another one: it is not the outermost, though
    the block without gradients may have begun inside that other one."""
    frame, calls = sys._getframe(1).f_back, 0
    while frame is not None:
        calls += frame.f_code is MODULE_CALL
        frame = frame.f_back
    return calls > 1


class _Casts:
    """A model that is made narrower: its weights or statistics may not fit."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def wrap_half(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def half(module: Any) -> Any:
            return self._cast(original, module)

        return half

    def wrap_to(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def to(module: Any, *args: Any, **kwargs: Any) -> Any:
            if any(a in NARROW for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)):
                return self._cast(original, module, *args, **kwargs)
            return original(module, *args, **kwargs)

        return to

    def _cast(self, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._events.quiet.is_the_programs:
            return original(module, *args, **kwargs)
        self._events.tell("cast_begins", module)
        try:
            return original(module, *args, **kwargs)
        finally:
            self._events.tell("cast_ends", module)


def _hear_of_compiling(events: Events, without: _WithoutGradients) -> None:
    without.give_up()
    events.tell("compiled")


def _wrap_compile(
    events: Events, without: _WithoutGradients, patches: Patches, original: Callable[..., Any]
) -> Callable[..., Any]:
    """As far as the program calls it: torch.cond and others compile for themselves."""

    def compile_function(*args: Any, **kwargs: Any) -> Any:
        caller = beyond_own(sys._getframe(1)).f_code.co_filename
        if not is_torch_file(caller) or caller.endswith("nn/modules/module.py"):
            _hear_of_compiling(events, without)
        found = original(*args, **kwargs)
        leave_own_alone(patches)  # now the compiler is imported
        return found

    return compile_function
