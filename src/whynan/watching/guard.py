"""The cheap look at each step: loss, gradients, and parameters where an update could overflow."""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

from whynan.model import Sink
from whynan.record.checks import PLAIN, has_other_modes, other_modes_off, tensors_in
from whynan.record.optimizer_sink import learning_rate, moves_safely, parameters, state_of
from whynan.record.patches import Patches
from whynan.record.questions import is_test
from whynan.record.sites import Frames, capture
from whynan.record.stats import has_nonfinite, is_only_below, local_of, norms, number
from whynan.watching.buffers import Buffers
from whynan.watching.by_hand import ByHand, is_scaled
from whynan.watching.history import History
from whynan.watching.readers import Readers, is_bad
from whynan.watching.scaling import Scaling

T = TypeVar("T")
Optimizer = torch.optim.Optimizer
# Zero gradients under a loss like this one are the work of an overflow, not of a perfect fit.
LARGE_LOSS = 1e15
LARGE_NORM = 1e12  # its square is still far from float32's limit
MAX_LOSSES = 64
LOSS_SCALE = "loss scale"
_Tensor, _float32, _strided = torch.Tensor, torch.float32, torch.strided
_current_node = torch._C._current_autograd_node
_tracing: Callable[[], Any] = torch._C._get_tracing_state
_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack


def is_transformed() -> bool:
    """Whether torch.func is at work, whose tensors stand for many and cannot be read; or
    `torch.jit.trace`, which would write down what whynan computes."""
    return _transform() is not None or _tracing() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Harm as the guard saw it. A `certain` one needs no second opinion."""

    sink: Sink
    subject: str
    step: int
    value: float | None = None
    frames: Frames | None = None
    certain: bool = True


class _Local:
    """What differs from thread to thread."""

    def __init__(self) -> None:
        self.depth = 0  # inside step()
        self.own = 0  # whynan's own work
        self.awaited = False  # a closure runs whose result will be looked at
        self.losses: list[torch.Tensor] = []
        self.values: list[float] = []  # of the losses of this step that were looked at
        self.clipped: list[torch.Tensor] = []  # norms that the gradients were scaled by
        self.spoilt = False  # a bad loss left non-finite gradients behind
        self.scaled = False  # a bad loss is only a finite one, scaled by hand


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.local = _Local()


Decision = Literal["go", "cancel"]


class _Cancelled(BaseException):
    """Leaves an optimizer of torch's own after its closure has run, before anything changed."""

    def __init__(self, result: Any) -> None:
        self.result = result


_alive: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in list(_alive):
        guard.active = False  # a worker is not the program


os.register_at_fork(after_in_child=_after_fork)  # once: it can never be taken back


class Guard:
    """Wraps `step`, `backward` and the ways values are read; says when harm is seen."""

    def __init__(self, buffers: Buffers) -> None:
        self.buffers = buffers
        self.step = 0
        self.active = True
        self.looking = True  # False while the tracer looks instead
        self.uses_optimizer = False
        self._per_thread = _PerThread()
        self.history = History()
        self.scaling = Scaling()
        self.by_hand = ByHand()
        self.readers = Readers(self)
        self.on_harm: Callable[[Seen, Optimizer | None], Decision] = lambda seen, optimizer: "go"
        self.on_doubt: Callable[[Seen], None] = lambda seen: None
        self.on_tested: Callable[[Seen], None] = lambda seen: None  # by the program itself
        self.before_step: Callable[[Optimizer], Decision] = lambda optimizer: "go"
        self.agree: Callable[[Optimizer, Decision], Decision] | None = None  # with other ranks
        self.on_cancel: Callable[[], None] = lambda: None  # from inside step()
        self.on_left_out: Callable[[], None] = lambda: None
        self.on_large: Callable[[], None] = lambda: None
        self.after_step: Callable[[Optimizer], None] = lambda optimizer: None
        self.roots: Callable[[], Iterable[torch.nn.Module]] = lambda: ()
        self.is_written: Callable[[torch.Tensor], bool] = lambda tensor: False
        self.on_follow: Callable[[], None] = lambda: None
        self.on_loss: Callable[[], None] = lambda: None
        self.after_backward: Callable[[list[float] | None], None] = lambda values: None
        self.on_error: Callable[[BaseException], None] = lambda error: None
        self._patches: Patches | None = None
        self._patched: set[type] = set()
        self._is_safe = False  # the update of this step cannot overflow
        self._is_spoilt = False  # a running variance is non-finite
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        # Parameters that held an infinity before their first update: a class that is ruled out.
        self._infinite: dict[int, weakref.ref[torch.Tensor]] = {}
        self._begun: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    @property
    def local(self) -> _Local:
        """What is known about the calling thread."""
        return self._per_thread.local

    def install(self, patches: Patches) -> None:
        self._patches = patches
        _alive.add(self)
        patches.wrap(Optimizer, "__init__", self._wrap_init)
        patches.wrap(torch.autograd, "_engine_run_backward", self._wrap_engine)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            patches.wrap(module, "clip_grad_norm_", self._wrap_clip)
        self.readers.install(patches)
        self.scaling.install(patches, lambda: self.active, self._scale_collapsed, self._left_out)

    def quietly(self, work: Callable[..., Any], *args: Any, otherwise: Any = None) -> Any:
        """whynan's own work, with its errors kept from the program."""
        if not self.active:
            return otherwise
        local = self._per_thread.local
        local.own += 1
        try:
            return work(*args)
        except Exception as error:
            self.active = False
            self.on_error(error)
            return otherwise
        finally:
            local.own -= 1

    @staticmethod
    def apart(work: Callable[..., T], *args: Any) -> T:
        """whynan's own reading, which the program's modes must not see."""
        if has_other_modes():
            with other_modes_off():
                return work(*args)
        return work(*args)

    # ---- step ---------------------------------------------------------------------------

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.follow(optimizer)

        return init

    def follow(self, optimizer: Optimizer) -> None:
        """From now on every step of this kind of optimizer is seen."""
        self.uses_optimizer = True
        self.optimizers.add(optimizer)
        kind = type(optimizer)
        if self._patches is not None and kind not in self._patched:
            self._patched.add(kind)
            self._patches.wrap(kind, "step", self._wrap_step)
        self.quietly(self.on_follow)

    def _begin(self, optimizer: Optimizer) -> None:
        """Before its first update, if that could overflow: which parameters are infinite already?"""
        self._begun.add(optimizer)
        dense = [p for _, p in parameters(optimizer) if local_of(p).layout is torch.strided]
        floating = [p for p in dense if p.is_floating_point()]
        sizes = norms([local_of(p).detach() for p in floating])
        for parameter, size in zip(floating, sizes, strict=True):
            if size == math.inf and _holds_infinity(parameter):
                self._infinite[id(parameter)] = weakref.ref(parameter)

    def _is_infinite_from_the_start(self, parameter: torch.Tensor) -> bool:
        known = self._infinite.get(id(parameter))
        return known is not None and known() is parameter and _holds_infinity(parameter)

    def _wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            local = self._per_thread.local
            if not self.active or local.depth or local.own:
                return original(optimizer, *args, **kwargs)
            local.depth += 1
            closure = args[0] if args else kwargs.get("closure")
            decision: Decision = "go"
            try:
                self.uses_optimizer = True
                if callable(closure) and type(optimizer).__module__.startswith("torch.optim"):
                    args, kwargs = (self._wrap_closure(closure, optimizer), *args[1:]), {}
                else:
                    decision = self._decide(optimizer)
                result = None if decision == "cancel" else original(optimizer, *args, **kwargs)
            except _Cancelled as cancelled:
                decision, result = "cancel", cancelled.result
                self.on_cancel()
            finally:
                local.depth -= 1
                local.awaited = False
            self.scaling.stepped()
            if decision == "go":
                self.quietly(self._look_after, optimizer)
            return result

        return step

    def _decide(self, optimizer: Optimizer) -> Decision:
        decision: Decision = self.quietly(self._look_before, optimizer, otherwise="go")
        if self.agree is not None:
            decision = self.quietly(self.agree, optimizer, decision, otherwise=decision)
        return decision

    def _wrap_closure(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        """Loss and gradients come to be inside step(): look when they are there. All of torch's
        optimizers call their closure before they change anything, LBFGS more than once."""
        self.local.awaited = True

        def run() -> Any:
            result = closure()
            if self.local.awaited:
                self.local.awaited = False
                if self._decide(optimizer) == "cancel":
                    raise _Cancelled(result)
            return result

        return run

    def _look_before(self, optimizer: Optimizer) -> Decision:
        if self.history.is_sampled(self.step):
            self.apart(self.history.sample, self.step, optimizer, self.roots())
        decision = self.before_step(optimizer)
        if decision == "cancel" or not self.looking:
            return decision
        dense = self.apart(self._measure, optimizer)
        values = self._per_thread.local.values
        total = self.history.total
        local = self._per_thread.local
        losses = sum(values)
        is_usual = 0 < total < LARGE_NORM and losses - losses == 0
        if is_usual and not local.clipped and not self._is_spoilt:
            return "go"
        bad = [v for v in values if v - v != 0]
        # Finite gradients that were not so before, or are a later loss's: the program saw to it.
        is_cleaned = total - total == 0 and (
            local.spoilt or local.scaled or (bad and values[-1] - values[-1] == 0)
        )
        if bad and not is_cleaned and not self.scaling.in_use:
            return self._harm("loss", "loss", bad[0], optimizer)
        if total - total != 0 and any(has_nonfinite(g) for g in dense):
            which = next(i for i, g in enumerate(dense) if has_nonfinite(g))
            return self._harm("gradient", _gradient_name(optimizer, which), None, optimizer)
        buffer = self.buffers.spoilt() if self._is_spoilt else None
        if buffer is not None:
            return self._harm("parameter", f"buffer {buffer}", None, optimizer)
        if any(_is_bad(n) for n in local.clipped):
            return self._harm("gradient", "norm of the gradients", float("inf"), optimizer)
        if dense and total == 0 and any(abs(v) > LARGE_LOSS for v in values):
            doubt = Seen(sink="gradient", subject="gradients", step=self.step, certain=False)
            self.on_doubt(doubt)
        if not total < LARGE_NORM:
            self.on_large()
        return "go"

    def _measure(self, optimizer: Optimizer) -> list[torch.Tensor]:
        """Gradients, and what is known of them and of the losses."""
        dense, variances = _gradients(optimizer), self.buffers.variances
        found = norms(dense + variances) if variances else norms(dense)
        self.history.gradients(found[: len(dense)] if variances else found)
        self._is_spoilt = any(v - v != 0 for v in found[len(dense) :]) if variances else False
        self._loss_values()
        self._is_safe = moves_safely(optimizer)
        if not self._is_safe and optimizer not in self._begun:
            self._begin(optimizer)
        return dense

    def _harm(
        self, sink: Sink, subject: str, value: float | None, optimizer: Optimizer | None
    ) -> Decision:
        frames = capture(sys._getframe(1))
        seen = Seen(sink=sink, subject=subject, step=self.step, value=value, frames=frames)
        if optimizer is not None:
            self.history.sample(self.step, optimizer, self.roots())
        return self.on_harm(seen, optimizer)

    def _look_after(self, optimizer: Optimizer) -> None:
        if self.history.is_measuring:
            self.apart(self.history.measure_update, self.step)
        if self.looking:
            rate = learning_rate(optimizer)
            values = self._per_thread.local.values
            self.history.row(self.step, values, rate, self.scaling.scale)
            if not self._is_safe or not self.history.total < LARGE_NORM:
                self.apart(self._look_at_parameters, optimizer)
        self.step += 1
        self.begin_step()
        self.after_step(optimizer)

    def _look_at_parameters(self, optimizer: Optimizer) -> None:
        kept = [
            (owner, tensor, key)
            for owner, tensor, key in state_of(optimizer)
            if tensor.layout is torch.strided and tensor.is_floating_point()
        ]
        found = norms([t.detach() for _, t, _ in kept])
        suspects = [k for k, n in zip(kept, found, strict=True) if n - n != 0]
        for owner, tensor, key in suspects:
            meant = self.is_written(tensor) if key else self._is_infinite_from_the_start(owner)
            if has_nonfinite(tensor.detach()) and not meant:
                name = next(n for n, p in parameters(optimizer) if p is owner)
                subject = (
                    f"{type(optimizer).__name__}'s {key} of {name}" if key else f"parameter {name}"
                )
                self._harm("parameter", subject, None, None)
                return

    def begin_step(self) -> None:
        """A step begins: what was collected belongs to the one before."""
        local = self._per_thread.local
        local.losses.clear()
        local.values.clear()
        local.clipped.clear()
        local.spoilt = local.scaled = False

    # ---- loss ---------------------------------------------------------------------------

    def _wrap_engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.active or _current_node() is not None or is_transformed():
                return original(roots, *args, **kwargs)
            is_bad = self.quietly(self._note_loss, roots)
            if is_bad:
                self.local.scaled = self.quietly(is_scaled, roots[-1], otherwise=False)
            result = original(roots, *args, **kwargs)
            if is_bad:
                self.quietly(self._note_gradients)
            if not self.uses_optimizer and not self.local.depth:
                self.quietly(self._backward_is_over, roots)
            return result

        return run_backward

    def _note_loss(self, roots: Any) -> bool:
        """Whether the loss is known to be bad: on a device, looking would mean waiting."""
        local = self._per_thread.local
        local.clipped.clear()  # the gradients of before were dropped, or are clipped again
        is_bad = self.apart(self._read_losses, roots, local)
        self.on_loss()
        hidden = local.depth and not local.awaited and self.looking
        if len(local.losses) > MAX_LOSSES or hidden:
            self.look_at_losses()  # a closure inside step(): there is no later chance
        return is_bad

    def _read_losses(self, roots: Any, local: _Local) -> bool:
        is_bad = False
        for root in roots:
            if not isinstance(root, _Tensor) or type(root).__torch_dispatch__ not in PLAIN:
                continue
            is_number = root.numel() == 1 and root.is_floating_point()
            if self.looking and is_number and root.is_cpu and not local.losses:
                value = number(root)
                local.values.append(value)
                is_bad = value - value != 0
            else:
                local.losses.append(root.detach())
                is_bad = False
        return is_bad

    def _note_gradients(self) -> None:
        """After a bad loss: the program may still clean what it left behind."""
        found = (g for optimizer in list(self.optimizers) for g in _gradients(optimizer))
        self.local.spoilt = any(map(has_nonfinite, found))

    def _loss_values(self) -> list[float]:
        """The losses not looked at yet; scalars in full, others only by what is wrong in them."""
        local = self._per_thread.local
        if not local.losses:
            return local.values
        fresh: list[float] = []
        for loss in local.losses:
            if loss.numel() == 1 and loss.is_floating_point():
                fresh.append(number(loss))
            elif loss.is_floating_point() or loss.is_complex():
                fresh.append(float("nan") if has_nonfinite(loss) else 0.0)
        local.losses.clear()
        local.values += fresh
        return local.values

    def has_loss(self) -> bool:
        """Whether a backward pass began since the last update."""
        local = self._per_thread.local
        return bool(local.losses or local.values)

    def peek_losses(self) -> list[float]:
        """The values of this step's losses so far."""
        return self._loss_values()

    def look_at_losses(self) -> None:
        """Between steps: a loss that nobody stepped with may still be harm."""
        seen = self.by_hand.end() or self._bad_loss()
        if seen is not None and self.looking:
            self.on_harm(seen, None)

    def _bad_loss(self) -> Seen | None:
        bad = [v for v in self._loss_values() if v - v != 0]
        if not bad or self.scaling.in_use:
            return None
        frames = capture(sys._getframe(1))
        return Seen(sink="loss", subject="loss", step=self.step, value=bad[0], frames=frames)

    def _backward_is_over(self, roots: Any) -> None:
        """Without an optimizer, a step is a backward pass."""
        if self.looking:
            certain = self.by_hand.look(self._bad_loss(), roots)
            if certain is not None:
                self.on_harm(certain, None)
            self.step += 1
            self.begin_step()
        self.after_backward(self.local.values)

    # ---- clipping, reading, scaling -------------------------------------------------------

    def _wrap_clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(*args: Any, **kwargs: Any) -> Any:
            norm = original(*args, **kwargs)
            if self.active and self.looking and isinstance(norm, torch.Tensor):
                self.local.clipped.append(norm.detach())
            return norm

        return clip

    def is_the_users(self) -> bool:
        """Whether it is the program that computes, not whynan, an optimizer or torch.func."""
        local = self.local
        return self.active and not local.own and not local.depth and not is_transformed()

    def read(self, value: float, frames: Frames | None) -> None:
        """A non-finite value was read out or shown."""
        seen = Seen(
            sink="observed", subject="value read out", step=self.step, value=value,
            frames=frames, certain=False,
        )  # fmt: skip
        tested = frames is not None and self.quietly(is_test, frames.code, frames.lasti)
        self.quietly(self.on_tested if tested else self.on_doubt, seen)

    def _scale_collapsed(self, optimizer: Optimizer) -> None:
        if self.looking:
            self.quietly(self._harm, "gradient", LOSS_SCALE, None, None)

    def _left_out(self) -> None:
        """GradScaler did not take the step: what was collected for it counts for nothing."""
        self.begin_step()
        self.quietly(self.on_left_out)

    def look_at_output(self, module: Any, output: Any) -> Seen | None:
        """What is bad in what an outermost module returned while no gradient was asked for."""
        value = self.apart(_bad_output, output)
        if value is None:
            return None
        return Seen(
            sink="output", subject=f"output of {type(module).__name__}", step=self.step,
            value=value, certain=False,
        )  # fmt: skip


def _bad_output(output: Any) -> float | None:
    for tensor in tensors_in(output):
        if is_bad(tensor) and not is_only_below(tensor):
            return math.nan if bool(tensor.isnan().any()) else math.inf
    return None


def _gradients(optimizer: Optimizer) -> list[torch.Tensor]:
    """As tensors that have a norm at memory speed."""
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if (
                type(gradient) is _Tensor
                and gradient.dtype is _float32
                and gradient.layout is _strided
                and not gradient.requires_grad
            ):
                found.append(gradient)
            elif gradient is not None:
                gradient = local_of(gradient)
                if type(gradient).__torch_dispatch__ in PLAIN:
                    found.append(_values(gradient))
    return found


def _values(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout is torch.sparse_coo:
        gradient = gradient._values()
    elif gradient.layout is not torch.strided:
        gradient = gradient.values()
    gradient = gradient.detach()
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def _holds_infinity(parameter: torch.Tensor) -> bool:
    """And no NaN, into which an update by it would turn."""
    values = local_of(parameter).detach()
    return has_nonfinite(values) and not bool(values.isnan().any())


def _is_bad(norm: torch.Tensor) -> bool:
    value = number(norm)
    return value - value != 0


def _gradient_name(optimizer: Optimizer, which: int) -> str:
    named = [n for n, p in parameters(optimizer) if p.grad is not None]
    return f"gradient of {named[which] if which < len(named) else 'a parameter'}"
