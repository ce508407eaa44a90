"""Gradients before `step()`; parameters, optimizer state, rates and buffers after it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import torch

from whynan.record.checks import Checks
from whynan.record.harm import GRADIENT_OF, Harm
from whynan.seam.optimizers import (
    CALM_LIMIT,
    CALM_STEPS,
    ROOTED,
    TAME,
    TAME_LIMIT,
    TAME_TYPES,
    Optimizer,
    hyper_of,
    is_ordinary,
    largest,
    learning_rate,
    parameters,
    state_of,
)
from whynan.seam.private import has_storage
from whynan.seam.reading import local_of, readable
from whynan.seam.sites import Frames, capture
from whynan.seam.stats import norms
from whynan.seam.training import Step

LOOKED_AT = 5  # first updates that are recorded, whatever their gradients


class Updates:
    """Looks at each step of an optimizer. In a recording without end, one that provably cannot overflow
    is spared: unless the kernel is wrong, it has nothing to show."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.tracer = checks.tracer
        self.last: Callable[[], Optimizer | None] = lambda: None  # that was asked to step
        self.magnitudes: list[float] = []  # of the gradients of this step
        self.spares = True
        self._tame = False
        self._spared: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # finite before they were
        self._calm: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._loaded: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # and has not stepped since

    def state_loaded(self, optimizer: Optimizer) -> None:
        self._calm.pop(optimizer, None)  # what is loaded has not been looked at
        self._loaded.add(optimizer)

    # ---- before the step ------------------------------------------------------------

    def before(self, step: Step) -> list[Harm]:
        """What is bad or wrong in the gradients."""
        optimizer, frames = step.optimizer, capture(step.frame)
        self.last = weakref.ref(optimizer)
        self.tracer.uses_optimizer = self.tracer.began = True
        self._tame = False
        found = self._gradients(optimizer, frames)
        self.tracer.careful = not self._largest() < TAME_LIMIT
        spares = self.spares and self.tracer.step >= LOOKED_AT
        if spares and not step.has_closure and not self.tracer.shadowing:
            self._tame = step.is_calm = self._is_tame(optimizer)
        if self._tame:
            self._spared.add(optimizer)
        return found

    def has_missed(self) -> bool:
        """Whether an update that was spared has made something non-finite after all."""
        optimizer = self.last()
        if optimizer is None or optimizer not in self._spared:
            return False
        return any(self.checks.is_nonfinite(t) for _, t, _ in state_of(optimizer))

    def begin(self, step: Step) -> None:
        """The update follows: its operations are the optimizer's."""
        local = self.tracer.local
        local.optimizer, local.step_frame = step.optimizer, step.inner
        torch_wrote_it = type(step.optimizer).__module__.startswith("torch.optim")
        frames = capture(step.frame) if torch_wrote_it else None
        local.optimizer_frames = frames and frames._replace(inside=step.code)

    def _gradients(self, optimizer: Optimizer, frames: Frames | None) -> list[Harm]:
        checks = self.checks
        gradients = [
            local_of(gradient)
            for group in optimizer.param_groups
            for p in group["params"]
            if (gradient := p.grad) is not None
        ]
        self.magnitudes, unknown = self._known_norms(gradients)
        values = [v for g in unknown if (v := readable(g)) is not None]
        dense = [v for v in values if v.layout is torch.strided and v.is_floating_point()]
        found: list[Harm] = []
        if any(checks.is_nonfinite(g) for g in unknown):
            named = [(n, p, p.grad) for n, p in parameters(optimizer) if p.grad is not None]
            bad = [(n, p, g) for n, p, g in named if checks.is_nonfinite(g)]
            for _, _, gradient in bad:
                ref = self.tracer.ref(local_of(gradient))
                if ref is not None:
                    ref.entry.from_grad = True
            found = checks.bad(
                "gradient",
                [(f"{GRADIENT_OF}{checks.label(n, p)}", g) for n, p, g in bad],
                frames,
                parameter=checks.label(bad[0][0], bad[0][1]),
                hyper=hyper_of(optimizer),
            )
        if checks.shadows:
            right = [
                (f"gradient of {checks.label(n, p)}", p.grad)
                for n, p in parameters(optimizer)
                if p.grad is not None
            ]
            found += checks.wrong("gradient", right, frames, hyper=hyper_of(optimizer))
        self.magnitudes += norms(dense)
        return found

    def _largest(self) -> float:
        biggest = max(self.magnitudes, default=0.0)
        return math.inf if any(m - m != 0 for m in self.magnitudes) else biggest

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
        biggest_gradient = self._largest()
        if type(optimizer) not in TAME or not self.magnitudes or not biggest_gradient < TAME_LIMIT:
            return False
        calm_steps = self._calm.get(optimizer, 0)
        if calm_steps and biggest_gradient < CALM_LIMIT and is_ordinary(optimizer):
            self._calm[optimizer] = calm_steps - 1
            return True
        self._calm[optimizer] = 0
        if optimizer in self._loaded:
            self._loaded.discard(optimizer)
            squares = [t for _, t, key in state_of(optimizer) if key in ROOTED]
            if any(t.numel() and bool((t < 0).any()) for t in squares):
                return False
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
        if biggest < CALM_LIMIT and biggest_gradient < CALM_LIMIT and is_ordinary(optimizer):
            self._calm[optimizer] = CALM_STEPS
        return True

    # ---- after the step -------------------------------------------------------------

    def end(self) -> None:
        """The update is over, or was left before it began."""
        self.tracer.local.optimizer = self.tracer.local.step_frame = None

    def after(self, step: Step) -> list[Harm]:
        """What became non-finite by the update."""
        optimizer, frames = step.optimizer, capture(step.frame)
        found = [] if self._tame else self._state(optimizer, frames)
        if not found:
            held = [g.get("lr") for g in optimizer.param_groups]
            rates = [lr for lr in held if isinstance(lr, torch.Tensor)]
            lr = learning_rate(optimizer)
            if rates and lr is not None and not math.isfinite(lr):
                named = [("learning rate", rate) for rate in rates]
                found = self.checks.bad("parameter", named, frames, hyper=hyper_of(optimizer))
        return found + self._buffers(frames)

    def _state(self, optimizer: Optimizer, frames: Frames | None) -> list[Harm]:
        bad = [(o, t, k) for o, t, k in state_of(optimizer) if self.checks.is_nonfinite(t)]
        if not bad:
            return []
        owner, _, key = bad[0]
        fallback = next(n for n, p in parameters(optimizer) if p is owner)
        name = self.checks.label(fallback, owner)
        whose = f"{type(optimizer).__name__}'s {key} of" if key else "parameter"
        return [
            Harm(
                sink="parameter",
                subject=f"{whose} {name}",
                tensors=[t.detach() for _, t, _ in bad[:4]],
                frames=frames,
                parameter=name,
                is_state=key is not None,
                hyper=hyper_of(optimizer) | {"optimizer": type(optimizer).__name__},
                step=self.tracer.step,
            )
        ]

    def _buffers(self, frames: Frames | None) -> list[Harm]:
        """Buffers written in this step; one that was non-finite from the start is a mask."""
        tracer = self.tracer
        tracer.later.settle()
        found: list[Harm] = []
        for root in self.checks.names.roots() if tracer.met_bad else ():
            for name, buffer in root.named_buffers():
                if not has_storage(buffer) or not buffer.is_floating_point():
                    continue
                entry = tracer.entry_of(buffer)
                if entry is None or not entry.tainted:
                    continue
                records = [tracer.records.get(i) for i, _ in entry.writers]
                if any(r is not None and r.step == tracer.step and not r.setup for r in records):
                    subject = [(f"buffer {name}", buffer)]
                    found += self.checks.bad(
                        "parameter", subject, frames, parameter=name, is_buffer=True
                    )
        return found

    def scaled_away(self, step: Step, effect: str) -> list[Harm]:
        """The gradients that a loss scaler has thrown away, step after step."""
        named = [
            (f"gradient of {self.checks.label(n, p)}", p.grad)
            for n, p in parameters(step.optimizer)
            if p.grad is not None
        ]
        return self.checks.bad("gradient", named, capture(step.frame), effect=effect)

    def spoilt_averages(self, parameters: Sequence[torch.Tensor]) -> list[Harm]:
        """Weights outside the optimizer that hold a NaN; an infinity may be meant there."""
        bad = [("parameter outside the optimizer", p) for p in parameters if p.isnan().any()]
        found = self.checks.bad("parameter", bad, None) if bad else []
        for harm in found:
            harm.is_buffer = True  # no gradient reaches it
        return found
