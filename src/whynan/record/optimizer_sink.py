"""Gradients before `step()`; parameters, optimizer state and buffers after it; loss scaling."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.nn.parameter import is_lazy

from whynan.model import Scalar
from whynan.record.backward_sink import BackwardSink
from whynan.record.checks import Checks
from whynan.record.patches import Patches
from whynan.record.sites import Frames, capture
from whynan.record.slicing import GRADIENT_OF, Harm
from whynan.record.stats import local_of, norms
from whynan.record.step_hooks import HOOKS

SKIPS_IN_A_ROW = 8
COLLAPSED_SCALE = 256.0  # eight halvings of torch's own starting scale
LARGE_GRADIENT = 1e12  # its square is still far from float32's limit
# An update of these is a short polynomial of gradient, state and parameter over sqrt(state) + eps.
# With all of them below TAME_LIMIT and an eps worth the name, no float32 result can overflow. With
# all below CALM_LIMIT and ordinary hyper-parameters one step adds at most 1e6 * 1e6 / 1e-12 and
# at most doubles: that stays below float32's 3e38 for CALM_STEPS steps without another look.
TAME = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
TAME_LIMIT = 1e12
CALM_LIMIT = 1e6
CALM_STEPS = 16
TAME_TYPES = (torch.float32, torch.float64, torch.bfloat16)
NUMBERS = (float, int)
HYPER = ("lr", "betas", "eps", "weight_decay", "momentum", "alpha", "nesterov", "rho")

Optimizer = torch.optim.Optimizer


class OptimizerSink:
    """Hooks every optimizer of the program."""

    def __init__(self, checks: Checks, backward: BackwardSink) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.backward = backward
        self.on_step: Callable[[int], None] = lambda step: None
        self.step_begins: Callable[[bool], None] = lambda gradients_are_bad: None
        self._hooks = (self._before, self._after)
        self._grad_max: float | None = None
        self._skips = 0
        self.last: Callable[[], Optimizer | None] = lambda: None  # that was asked to step
        self._tame = False
        self._calm: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        HOOKS.add(self._hooks)
        patches.wrap(torch.amp.GradScaler, "step", self._wrap_scaler)
        patches.wrap(Optimizer, "__init__", self._wrap_init)
        patches.wrap(Optimizer, "load_state_dict", self._wrap_load)
        patches.wrap(Optimizer, "zero_grad", self._wrap_zero_grad)
        for name in ("__enter__", "__exit__"):  # around each `step()`, for a profiler
            patches.wrap(record_function, name, self._wrap_profiler)

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self.tracer.will_train = True
            original(optimizer, *args, **kwargs)

        return init

    def _wrap_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self._calm.pop(optimizer, None)  # what is loaded has not been looked at
            return original(optimizer, *args, **kwargs)

        return load_state_dict

    def _wrap_zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Gradients that are set to None: nothing is computed, so the recorder may rest."""

        def zero_grad(optimizer: Any, set_to_none: bool = True) -> None:
            tracer = self.tracer
            mode = tracer.pause() if set_to_none and tracer.active else None
            try:
                original(optimizer, set_to_none)
            finally:
                tracer.resume(mode)

        return zero_grad

    def _wrap_profiler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mark(*args: Any) -> Any:
            mode = self.tracer.pause() if self.tracer.active else None
            try:
                return original(*args)
            finally:
                self.tracer.resume(mode)

        return mark

    def remove(self) -> None:
        HOOKS.remove(self._hooks)

    # ---- before the step ------------------------------------------------------------

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any, frame: Any) -> Any:
        """What it returns are the arguments to use instead."""
        local, tracer = self.tracer.local, self.tracer
        if local.busy or not tracer.active:
            return None
        frames = capture(frame)
        tracer.uses_optimizer = tracer.began = True
        local.paused = tracer.pause()
        self._tame = False
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # after the optimizer itself
        if not callable(closure):
            self.checks.quietly(lambda: self._check_gradients(optimizer, frames, False))
        if not self._tame:
            self.tracer.put_back()
        local.optimizer = optimizer
        self.last = weakref.ref(optimizer)
        local.step_frame = frame
        torch_wrote_it = type(optimizer).__module__.startswith("torch.optim")
        local.optimizer_frames = frames if torch_wrote_it else None
        if not callable(closure):
            return None
        return (optimizer, self._looking(closure, optimizer, frames), *args[2:]), {}

    def _looking(
        self, closure: Callable[[], Any], optimizer: Optimizer, frames: Frames | None
    ) -> Callable[[], Any]:
        """The gradients come to be in the closure; those that are there before are old."""
        fresh = True

        def run() -> Any:
            nonlocal fresh
            result = closure()
            if fresh:
                fresh = False
                self.look(optimizer, frames)
            return result

        return run

    def leave(self) -> None:
        """The step ended before its update."""
        self.tracer.local.optimizer = self.tracer.local.step_frame = None
        self.tracer.put_back()

    def look(self, optimizer: Optimizer, frames: Frames | None) -> None:
        """Judge the gradients now, before somebody decides whether the step is taken."""
        self.checks.quietly(lambda: self._check_gradients(optimizer, frames, True))

    def expect_skips(self, skips: int) -> None:
        """So many steps were skipped in a row before the recording began."""
        self._skips = skips

    def _check_gradients(
        self, optimizer: Optimizer, frames: Frames | None, has_closure: bool
    ) -> None:
        checks = self.checks
        gradients = [
            local_of(gradient)
            for group in optimizer.param_groups
            for p in group["params"]
            if (gradient := p.grad) is not None
        ]
        magnitudes, unknown = self._known_norms(gradients)
        is_bad = any(checks.is_nonfinite(g) for g in unknown)
        self.step_begins(is_bad)
        if is_bad:
            named = [(n, p, p.grad) for n, p in parameters(optimizer) if p.grad is not None]
            bad = [(n, p, g) for n, p, g in named if checks.is_nonfinite(g)]
            name = checks.label(bad[0][0], bad[0][1])
            checks.check(
                "gradient",
                [(f"{GRADIENT_OF}{checks.label(n, p)}", g) for n, p, g in bad],
                frames,
                parameter=name,
                hyper=hyper_of(optimizer),
            )
        if checks.shadows:
            right = [
                (f"gradient of {checks.label(n, p)}", p.grad)
                for n, p in parameters(optimizer)
                if p.grad is not None
            ]
            checks.check_right("gradient", right, frames, hyper=hyper_of(optimizer))
        dense = [g for g in unknown if g.layout is torch.strided and g.is_floating_point()]
        magnitudes += norms(dense)
        self._grad_max = max(magnitudes, default=None)
        if any(m - m != 0 for m in magnitudes):
            self._grad_max = math.inf
        self.tracer.careful = self._grad_max is not None and not self._grad_max < LARGE_GRADIENT
        if not has_closure and not self.tracer.shadowing:
            self._tame = self._is_tame(optimizer)

    def _known_norms(self, gradients: list[torch.Tensor]) -> tuple[list[float], list[torch.Tensor]]:
        """Most are known since the backward pass wrote them; and the gradients of which not."""
        found, unknown = [], []
        for gradient in gradients:
            entry = self.tracer.entry_of(gradient) if gradient.layout is torch.strided else None
            if (
                entry is None
                or entry.norm is None
                or entry.tainted
                or entry.nbytes != gradient.numel() * gradient.element_size()
            ):
                unknown.append(gradient)
            else:
                found.append(entry.norm)
        return found, unknown

    def _is_tame(self, optimizer: Optimizer) -> bool:
        """Whether the update provably cannot overflow, so that it need not be recorded."""
        if type(optimizer) not in TAME or self._grad_max is None or not self._grad_max < TAME_LIMIT:
            return False
        calm_steps = self._calm.get(optimizer, 0)
        if calm_steps and self._grad_max < CALM_LIMIT and _is_ordinary(optimizer):
            self._calm[optimizer] = calm_steps - 1
            return True
        self._calm[optimizer] = 0
        tensors = [t for _, t, _ in state_of(optimizer)]
        if any(t.layout is not torch.strided or t.dtype not in TAME_TYPES for t in tensors):
            return False
        for group in optimizer.param_groups:
            numbers = [group.get(name, 0.0) for name in ("lr", "weight_decay", "momentum")]
            if not all(isinstance(n, (int, float)) and abs(n) <= 1e3 for n in numbers):
                return False
            if not group.get("eps", 1.0) >= 1e-12 or group.get("centered"):
                return False
        biggest = largest(tensors)
        if biggest is None or not biggest < TAME_LIMIT:
            return False
        if biggest < CALM_LIMIT and self._grad_max < CALM_LIMIT and _is_ordinary(optimizer):
            self._calm[optimizer] = CALM_STEPS
        return True

    # ---- after the step -------------------------------------------------------------

    def _after(self, optimizer: Optimizer) -> None:
        local = self.tracer.local
        was_tame = local.paused is not None
        if local.optimizer is not optimizer:
            self.tracer.put_back()
            return
        frames = capture(sys._getframe(1))
        local.optimizer = local.step_frame = None
        self.checks.quietly(lambda: self._check_step(optimizer, frames, was_tame))
        self.tracer.put_back()
        self.on_step(self.tracer.step)

    def _check_step(self, optimizer: Optimizer, frames: Frames | None, was_tame: bool) -> None:
        lr = learning_rate(optimizer)
        self.backward.note_step(self._grad_max, lr)
        kept = [] if was_tame else state_of(optimizer)
        bad = [(o, t, k) for o, t, k in kept if self.checks.is_nonfinite(t)]
        if bad:
            owner, _, key = bad[0]
            fallback = next(n for n, p in parameters(optimizer) if p is owner)
            name = self.checks.label(fallback, owner)
            whose = f"{type(optimizer).__name__}'s {key} of" if key else "parameter"
            self.checks.harm(
                Harm(
                    sink="parameter",
                    subject=f"{whose} {name}",
                    tensors=[t.detach() for _, t, _ in bad[:4]],
                    frames=frames,
                    parameter=name,
                    is_state=key is not None,
                    hyper=hyper_of(optimizer) | {"optimizer": type(optimizer).__name__},
                )
            )
        elif lr is not None and not math.isfinite(lr):
            self._check_learning_rate(optimizer, frames, hyper_of(optimizer))
        self._check_buffers(frames)
        self.checks.step_is_over()

    def _check_learning_rate(
        self, optimizer: Optimizer, frames: Frames | None, hyper: dict[str, Scalar]
    ) -> None:
        rates = [g["lr"] for g in optimizer.param_groups if isinstance(g["lr"], torch.Tensor)]
        self.checks.check("parameter", [("learning rate", r) for r in rates], frames, hyper=hyper)

    def _check_buffers(self, frames: Frames | None) -> None:
        """Buffers written in this step; one that was non-finite from the start is a mask."""
        tracer = self.tracer
        if not tracer.met_bad:
            return
        for root in self.checks.modules.roots():
            for name, buffer in root.named_buffers():
                if not torch._C._has_storage(buffer) or not buffer.is_floating_point():
                    continue
                entry = tracer.entry_of(buffer)
                if entry is None or not entry.tainted:
                    continue
                records = [tracer.records.get(i) for i, _ in entry.writers]
                if any(r is not None and r.step == tracer.step and not r.setup for r in records):
                    subject = [(f"buffer {name}", buffer)]
                    self.checks.check("parameter", subject, frames, parameter=name, is_buffer=True)

    # ---- mixed precision ------------------------------------------------------------

    def _wrap_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.tracer.step
            result = original(scaler, optimizer, *args, **kwargs)
            self.backward.uses_scaler = True
            self._skips = self._skips + 1 if self.tracer.step == before else 0
            if self._skips >= SKIPS_IN_A_ROW and scaler.get_scale() <= COLLAPSED_SCALE:
                frames = capture(sys._getframe(1))
                self.checks.quietly(lambda: self._check_scaler(scaler, optimizer, frames))
            return result

        return step

    def _check_scaler(self, scaler: Any, optimizer: Optimizer, frames: Frames | None) -> None:
        skips, self._skips = self._skips, 0
        named = [
            (f"gradient of {self.checks.label(n, p)}", p.grad)
            for n, p in parameters(optimizer)
            if p.grad is not None
        ]
        scale = scaler.get_scale()
        effect = f"GradScaler skipped {skips} steps in a row; the loss scale fell to {scale:g}"
        self.checks.check("gradient", named, frames, effect=effect)


def moves_safely(optimizer: Optimizer) -> bool:
    """Whether moderate gradients cannot make this optimizer's update overflow."""
    if type(optimizer) not in TAME or not _is_ordinary(optimizer):
        return False
    groups = optimizer.param_groups
    if groups[0].get("centered"):
        return False
    for group in groups:
        members = group["params"]
        if members and members[0].dtype not in TAME_TYPES:
            return False
    return True


def _is_ordinary(optimizer: Optimizer) -> bool:
    """lr at most 1, weight decay that at most doubles, momentum below 1, an eps worth the name."""
    for group in optimizer.param_groups:
        get = group.get
        lr, decay = get("lr", 0.0), get("weight_decay", 0.0)
        momentum, eps = get("momentum", 0.0), get("eps", 1.0)
        # A tensor is none of these: looking at it may mean waiting for a device.
        if not (
            isinstance(lr, NUMBERS)
            and isinstance(decay, NUMBERS)
            and isinstance(momentum, NUMBERS)
            and isinstance(eps, NUMBERS)
            and -1 <= lr <= 1
            and -1 <= decay <= 1
            and -1 < momentum < 1
            and eps >= 1e-12
        ):
            return False
    return True


def parameters(optimizer: Optimizer) -> list[tuple[str, torch.Tensor]]:
    """Every parameter with a name to fall back on."""
    return [
        (f"param_groups[{g}][{i}]", parameter)
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
        if torch._C._has_storage(parameter) and not is_lazy(parameter)
    ]


def state_of(optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor, str | None]]:
    """(parameter, tensor, name of the state) for each parameter and each tensor kept for it."""
    found: list[tuple[torch.Tensor, torch.Tensor, str | None]] = []
    for _, parameter in parameters(optimizer):
        found.append((parameter, local_of(parameter), None))
        for key, state in optimizer.state.get(parameter, {}).items():
            if isinstance(state, torch.Tensor) and torch._C._has_storage(state) and key != "step":
                found.append((parameter, local_of(state), str(key)))
    return found


def largest(tensors: list[torch.Tensor]) -> float | None:
    """The largest magnitude in them all, with one transfer from the device."""
    dense = [t for t in tensors if t.layout is torch.strided and t.is_floating_point()]
    with torch.no_grad():
        ends = [end for t in dense if t.numel() for end in torch.aminmax(t)]
        if not ends:
            return None
        first = ends[0]
        if any(end.dtype != first.dtype or end.device != first.device for end in ends):
            ends = [end.to(first.device, torch.float32) for end in ends]
        return float(torch.stack(ends).abs().max())


def learning_rate(optimizer: Optimizer) -> float | None:
    """The first group's, which is most programs' only one."""
    lr = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    if isinstance(lr, torch.Tensor):
        return float(lr.detach()) if lr.numel() == 1 else None
    return float(lr) if isinstance(lr, (int, float)) else None


def hyper_of(optimizer: Optimizer) -> dict[str, Scalar]:
    """The hyper-parameters a report shows."""
    found: dict[str, Scalar] = {}
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    for name in HYPER:
        value = group.get(name)
        if isinstance(value, torch.Tensor):
            value = float(value.detach()) if value.numel() == 1 else None
        if isinstance(value, bool):
            found[name] = value
        elif isinstance(value, (int, float)):
            found[name] = float(value)
        elif isinstance(value, tuple):
            found[name] = str(value)
    return found
