"""Optimizers, backward passes, clipping and loss scaling, as events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import Optimizer

from whynan.seam.events import Events
from whynan.seam.optimizers import is_dry
from whynan.seam.patches import Patches
from whynan.seam.private import BACKWARD, current_node, dispatch_modes, step_post_hook
from whynan.seam.quiet import is_transformed, pause, resume
from whynan.seam.reading import all_hollow


@dataclass(slots=True)
class Step:
    """One call of an optimizer's `step()`."""

    optimizer: Optimizer
    frame: FrameType  # of whoever called it
    inner: FrameType  # alive for as long as it runs
    code: CodeType | None = None  # what runs in it
    closure: Callable[[], Any] | None = None
    is_calm: bool = False  # the update cannot overflow: it need not be recorded
    cancelled: bool = False

    @property
    def has_closure(self) -> bool:
        return self.closure is not None


class _Cancelled(BaseException):
    """Leaves an optimizer of torch's own after its closure has run, before anything changed."""

    def __init__(self, result: Any) -> None:
        self.result = result


def install(events: Events, patches: Patches) -> Optimizers:
    optimizers = Optimizers(events, patches)
    patches.after(Optimizer, "__init__", optimizers.follow)
    patches.wrap(Optimizer, "zero_grad", optimizers.wrap_zero_grad)
    patches.wrap(Optimizer, "load_state_dict", optimizers.wrap_load)
    patches.wrap(*BACKWARD, partial(_wrap_backward, events))
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        patches.wrap(module, "clip_grad_norm_", partial(_wrap_clipping, events))
    patches.wrap(torch.amp.GradScaler, "scale", optimizers.scaling.wrap_scale)
    patches.wrap(torch.amp.GradScaler, "step", optimizers.scaling.wrap_step)
    return optimizers


def at_first_step(work: Callable[[], None]) -> Callable[[], None]:
    """Call `work` once an optimizer has stepped; the result takes that back."""
    is_over = False

    def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal is_over
        if not is_over and not is_dry(optimizer):
            is_over = True  # torch goes through its hooks now: none may be removed
            work()

    handle = step_post_hook(stepped)
    return lambda: handle.remove()


class Optimizers:
    """Every optimizer that the program makes, or that somebody knows of."""

    def __init__(self, events: Events, patches: Patches) -> None:
        self.scaling = _Scaling(events)
        self._events = events
        self._quiet = events.quiet
        self._patches = patches
        self._wrapped: set[type] = set()

    def follow(self, optimizer: Optimizer) -> None:
        """From now on every step of this kind of optimizer is seen."""
        kind = type(optimizer)
        if kind not in self._wrapped:
            self._wrapped.add(kind)
            self._patches.wrap(kind, "step", self._wrap_step)
        self._events.tell("optimizer_made", optimizer)

    def wrap_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._events.tell("state_loaded", optimizer)
            return original(optimizer, *args, **kwargs)

        return load_state_dict

    def wrap_zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Gradients that are set to None: nothing is computed, so the recorder may rest."""

        def zero_grad(optimizer: Any, set_to_none: bool = True) -> None:
            mode = pause() if set_to_none and dispatch_modes() and self._quiet.active else None
            try:
                original(optimizer, set_to_none)
            finally:
                if mode is not None:
                    resume(mode)
            if not self._quiet.local.own:
                self._events.tell("gradients_dropped", optimizer)

        return zero_grad

    def _wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        local = self._quiet.local

        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # a compiler reads along, and stops inside: it then calls this
                return original(optimizer, *args, **kwargs)
            if not self._quiet.active or local.depth or local.own or is_dry(optimizer):
                return original(optimizer, *args, **kwargs)
            closure: Any = args[0] if args else kwargs.get("closure")
            code = getattr(original, "__code__", None)
            closure = closure if callable(closure) else None
            this = Step(optimizer, sys._getframe(1), sys._getframe(), code, closure)
            try:
                return self._stepped(original, this, optimizer, args, kwargs)
            finally:
                del this  # it knows this frame; in a circle, they would keep the caller's variables

        return step

    def _stepped(
        self, original: Callable[..., Any], this: Step, optimizer: Any, args: Any, kwargs: Any
    ) -> Any:
        local, mode = self._quiet.local, None
        local.depth += 1
        try:
            closure = this.closure
            if closure is not None and type(optimizer).__module__.startswith("torch.optim"):
                looking = self._looking(closure, this)
                result = original(optimizer, looking, *args[1:])
            else:
                self._decide(this)
                if this.cancelled:
                    result = None
                else:
                    mode = pause() if this.is_calm else None
                    result = original(optimizer, *args, **kwargs)
        except _Cancelled as cancelled:
            result = cancelled.result
            self._events.tell("step_left", this)
        finally:
            if mode is not None:
                resume(mode)
            local.depth -= 1
        self.scaling.has_stepped = True
        if not this.cancelled:
            self._events.tell("step_ends", this)
        return result

    def _decide(self, step: Step) -> None:
        for decision in self._events.ask("step_begins", step):
            step.cancelled = decision == "cancel"

    def _looking(self, closure: Callable[[], Any], step: Step) -> Callable[[], Any]:
        """Loss and gradients come to be inside step(): look when they are there. All of torch's
        optimizers call their closure before they change anything, LBFGS more than once."""
        fresh = True

        def run() -> Any:
            nonlocal fresh
            result = closure()
            if fresh:
                fresh = False
                self._decide(step)
                if step.cancelled:
                    raise _Cancelled(result)
            return result

        return run


def _wrap_backward(events: Events, original: Callable[..., Any]) -> Callable[..., Any]:
    """The engine's entry, which all of `backward()` and `autograd.grad` go through."""
    local = events.quiet.local

    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        if local.own or current_node() is not None or is_transformed() or all_hollow(roots):
            return original(roots, *args, **kwargs)
        events.tell("backward_begins", roots, sys._getframe(1))
        result = original(roots, *args, **kwargs)
        events.tell("backward_ends", roots, result)
        return result

    return run_backward


def _wrap_clipping(events: Events, original: Callable[..., Any]) -> Callable[..., Any]:
    def clip(*args: Any, **kwargs: Any) -> Any:
        norm = original(*args, **kwargs)
        if isinstance(norm, torch.Tensor) and not events.quiet.local.own:
            events.tell("gradients_clipped", norm)
        return norm

    return clip


class _Scaling:
    """`GradScaler`: a step that it leaves out is never seen by the optimizer."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.has_stepped = False

    def wrap_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, outputs: Any) -> Any:
            if scaler.is_enabled():
                self._events.tell("loss_scaled")
            return original(scaler, outputs)

        return scale

    def wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not scaler.is_enabled() or not self._events.quiet.active:
                return original(scaler, optimizer, *args, **kwargs)
            this = Step(optimizer, sys._getframe(1), sys._getframe())
            self.has_stepped = False
            try:
                result = original(scaler, optimizer, *args, **kwargs)
                self._events.tell("scaler_stepped", scaler, this, self.has_stepped)
                return result
            finally:
                del this  # as above

        return step
