"""The cheap look at each step: losses, gradients, and parameters where an update could overflow."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch

from whynan.harm.ledger import Sign
from whynan.model import Sink
from whynan.seam.optimizers import (
    TAME_LIMIT,
    Optimizer,
    gradient_limit,
    learning_rate,
    moves_safely,
    parameters,
    state_of,
)
from whynan.seam.private import stored_values
from whynan.seam.reading import PLAIN, readable
from whynan.seam.sites import Frames, capture
from whynan.seam.stats import (
    ORDINARY,
    fetched,
    has_nonfinite,
    launched_norms,
    norms,
    number,
    worst,
)
from whynan.seam.tensors import bad_values
from whynan.seam.training import Step
from whynan.watching.buffers import Buffers
from whynan.watching.history import History
from whynan.watching.outside import IsWritten, Outside

# Zero gradients under a loss like this one are the work of an overflow, not of a perfect fit.
LARGE_LOSS = 1e15
MAX_LOSSES = 64
SOME = 4  # gradients that stand for all, where only a device knows whether the loss is huge
_Tensor, _strided = torch.Tensor, torch.strided
_FLOATING = frozenset(kind for kind in ORDINARY if kind.is_floating_point)


@dataclass(slots=True)
class Before:
    """What is known right before an update."""

    losses: list[Sign] = field(default_factory=list)
    gradients: list[Sign] = field(default_factory=list)
    norms: list[Sign] = field(default_factory=list)  # infinite ones that gradients were clipped by
    buffers: list[Sign] = field(default_factory=list)
    is_large: bool = False  # the update itself may overflow
    is_hidden: bool = False  # no gradient at all under a huge loss


NOTHING = Before()  # nearly always


@dataclass(slots=True)
class _Update:
    """An update that is made, and what it may have spoilt."""

    optimizer: Optimizer
    kept: list[tuple[torch.Tensor, torch.Tensor, str | None]]
    at: int
    frames: Frames | None
    is_written: IsWritten
    sizes: list[torch.Tensor] = field(default_factory=list)  # on a device, not read yet
    known: list[float] = field(default_factory=list)


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []  # not looked at yet: that may mean waiting
        self.values: list[float] = []  # of the losses of this step that were looked at
        self.clipped: list[torch.Tensor] = []  # norms that the gradients were scaled by
        self.had_gradients = False  # under a huge loss, right after its backward pass
        self.gradients: list[torch.Tensor] = []  # norms of some, then, on a device
        self.update: _Update | None = None  # the last one, if a device has not told of it yet


class Guard:
    """Looks; what it means is decided elsewhere."""

    def __init__(self, buffers: Buffers, history: History) -> None:
        self.buffers = buffers
        self.history = history
        self.outside = Outside()
        self.passes = 0  # losses that the last step was made with
        self.local = _PerThread()
        self._is_safe = False  # the update of this step cannot overflow with moderate gradients
        self._limit = TAME_LIMIT  # that they have to stay below
        self._is_spoilt = False  # a running variance is non-finite
        # Parameters that held an infinity before their first update: a class that is ruled out.
        self._infinite: dict[int, weakref.ref[torch.Tensor]] = {}
        self._begun: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def begin_step(self) -> None:
        """A step begins: what was collected belongs to the one before."""
        self.drop_losses()
        self.local.clipped.clear()
        self.local.had_gradients = False

    # ---- losses ---------------------------------------------------------------------------

    def note_loss(self, roots: Any) -> None:
        """On a device, looking would mean waiting: that is left for later."""
        local = self.local
        local.clipped.clear()  # the gradients of before were dropped, or are clipped again
        for root in roots:
            if not isinstance(root, _Tensor) or type(root).__torch_dispatch__ not in PLAIN:
                continue
            is_number = root.numel() == 1 and root.is_floating_point()
            if is_number and root.is_cpu and not local.losses:
                local.values.append(number(root))
            elif (values := readable(root)) is not None:
                local.losses.append(values)
        if len(local.losses) > MAX_LOSSES:
            self.loss_values()

    def note_gradients(self, optimizers: Iterable[Optimizer]) -> None:
        """Under a huge loss: whether there are gradients, before the program scales them."""
        local = self.local
        if local.losses:  # of which nothing is known yet
            some = [g for optimizer in optimizers for g in _gradients(optimizer, SOME)]
            local.gradients = launched_norms([g for g in some if not g.is_cpu])
            return
        if not local.values or (len(local.values) == 1 and abs(local.values[0]) <= LARGE_LOSS):
            local.had_gradients = False  # nearly always
            return
        local.had_gradients = _is_huge(local.values) and any(
            size != 0 for optimizer in optimizers for size in norms(_gradients(optimizer))
        )

    def drop_losses(self) -> None:
        self.local.losses.clear()
        self.local.gradients.clear()
        self.local.values.clear()

    def has_loss(self) -> bool:
        """Whether a backward pass began since the last update."""
        return bool(self.local.losses or self.local.values)

    def loss_values(self) -> list[float]:
        """Those of this step so far; scalars in full, others only by what is wrong in them."""
        local = self.local
        if local.losses:
            self._from_device([])
        return local.values

    def bad_losses(self, step: int, frames: Frames | None) -> list[Sign]:
        bad = [v for v in self.loss_values() if v - v != 0]
        return [_sign("loss", "loss", step, frames, bad[0])] if bad else []

    # ---- around an optimizer's step -----------------------------------------------------------

    def before(self, step: Step, at: int) -> Before:
        """At most one wait for the device when all is well."""
        optimizer, local = step.optimizer, self.local
        dense = self._measure(optimizer)
        values, total = self.loss_values(), self.history.total
        is_usual = 0 < total < self._limit
        bad = [v for v in values if v - v != 0]
        if is_usual and not bad and not local.clipped and not self._is_spoilt:
            return NOTHING
        found, frames = Before(), capture(step.frame)
        found.losses = [_sign("loss", "loss", at, frames, bad[0])] if bad else []
        if total - total != 0:
            which = next((i for i, g in self._suspicious(dense) if has_nonfinite(g)), None)
            if which is not None:
                name = _gradient_name(optimizer, which)
                found.gradients.append(_sign("gradient", name, at, frames))
        buffer = self.buffers.spoilt() if self._is_spoilt else None
        if buffer is not None:
            found.buffers.append(_sign("parameter", f"buffer {buffer}", at, frames))
        if any(_is_nonfinite(n) for n in local.clipped):
            found.norms.append(_sign("gradient", "norm of the gradients", at, frames, math.inf))
        if bool(dense) and total == 0 and local.had_gradients:
            subject = "gradients, which all became 0"
            found.norms.append(_sign("gradient", subject, at, frames))
        found.is_hidden = bool(dense) and total == 0 and _is_huge(values)
        found.is_large = not total < self._limit
        return found

    def _suspicious(self, dense: list[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
        """Those whose norm is non-finite; it may have overflowed."""
        return [(i, dense[i]) for i, size in enumerate(self.history.norms) if size - size != 0]

    def _measure(self, optimizer: Optimizer) -> list[torch.Tensor]:
        """Gradients, and what is known of them."""
        dense, variances = _gradients(optimizer), self.buffers.variances
        asked = dense + variances if variances else dense
        waits = self.local.losses or self.local.update is not None
        found = self._from_device(asked) if waits else norms(asked)
        self.history.gradients(found[: len(dense)] if variances else found)
        self._is_spoilt = any(v - v != 0 for v in found[len(dense) :]) if variances else False
        self._is_safe = moves_safely(optimizer)
        self._limit = gradient_limit(optimizer) if self._is_safe else _tame_limit(optimizer)
        if not self._is_safe and optimizer not in self._begun:
            self._begin(optimizer)
        return dense

    def _from_device(self, asked: list[torch.Tensor]) -> list[float]:
        """Norms, losses and what was clipped by, with one wait for them all."""
        local = self.local
        losses = [(loss, q) for loss in local.losses if (q := _question(loss)) is not None]
        questions = [question for _, question in losses]
        before = local.update.sizes if local.update is not None else []
        every = (launched_norms(asked), questions, local.clipped, local.gradients, before)
        found = iter(fetched([scalar for some in every for scalar in some]))
        sizes, values, clipped, gradients, states = ([next(found) for _ in some] for some in every)
        if local.update is not None:
            local.update.known = states
        local.values += [
            value if loss.numel() == 1 or value - value != 0 else 0.0
            for (loss, _), value in zip(losses, values, strict=True)
        ]
        kept = zip(local.clipped, clipped, strict=True)
        local.clipped = [norm for norm, value in kept if value - value != 0]
        if gradients:
            local.had_gradients = _is_huge(local.values) and any(gradients)
        local.losses, local.gradients = [], []
        return sizes

    def _begin(self, optimizer: Optimizer) -> None:
        """Before its first update, if that could overflow: which parameters are infinite already?"""
        self._begun.add(optimizer)
        known = [(p, readable(p)) for _, p in parameters(optimizer)]
        dense = [(p, v) for p, v in known if v is not None and v.layout is torch.strided]
        floating = [(p, v) for p, v in dense if v.is_floating_point()]
        sizes = norms([v for _, v in floating])
        for (parameter, _), size in zip(floating, sizes, strict=True):
            if size == math.inf and _holds_infinity(parameter):
                self._infinite[id(parameter)] = weakref.ref(parameter)

    def after(self, step: Step, at: int, is_written: IsWritten) -> list[Sign]:
        """Parameters and state that became non-finite, where the update could do that."""
        if step.has_closure and (buffer := self.buffers.spoilt()) is not None:
            return [_sign("parameter", f"buffer {buffer}", at, capture(step.frame))]
        if self._is_safe and self.history.total < self._limit:
            return []
        optimizer = step.optimizer
        kept = [
            (owner, values, key)
            for owner, values, key in state_of(optimizer)
            if values.layout is torch.strided and values.is_floating_point()
        ]
        values = [v for _, v, _ in kept]
        update = _Update(optimizer, kept, at, capture(step.frame), is_written)
        if values and not (values[0].is_cpu and values[-1].is_cpu):
            update.sizes = launched_norms(values)  # read with the next step's gradients
            self.local.update = update
            return []
        return self._spoilt_by(update, norms(values))

    def late_signs(self) -> list[Sign]:
        """On a device: what `after` would have said of the update before."""
        update, self.local.update = self.local.update, None
        if update is None:
            return []
        return self._spoilt_by(update, update.known or fetched(update.sizes))

    def _spoilt_by(self, update: _Update, sizes: list[float]) -> list[Sign]:
        optimizer = update.optimizer
        for (owner, tensor, key), size in zip(update.kept, sizes, strict=True):
            if size - size == 0 or not has_nonfinite(tensor):
                continue
            if update.is_written(tensor) if key else self._is_infinite_from_the_start(owner):
                continue
            name = next(n for n, p in parameters(optimizer) if p is owner)
            whose = f"{type(optimizer).__name__}'s {key} of {name}" if key else f"parameter {name}"
            return [_sign("parameter", whose, update.at, update.frames)]
        return []

    def note_row(self, step: Step, at: int, scale: float | None) -> None:
        values = self.local.values
        rate = learning_rate(step.optimizer, waits=False)
        self.history.row(at, values[-1] if values else None, rate, scale)

    def _is_infinite_from_the_start(self, parameter: torch.Tensor) -> bool:
        known = self._infinite.get(id(parameter))
        return known is not None and known() is parameter and _holds_infinity(parameter)

    def left_bad(self, optimizers: Iterable[Optimizer], at: int) -> tuple[list[Sign], bool]:
        """Parameters that are non-finite when the program ends, and whether a gradient is."""
        found = [p for optimizer in optimizers for _, p in parameters(optimizer)]
        bad = [
            _sign("parameter", "a parameter", at, None) for p in found if bad_values(p) is not None
        ]
        return bad, any(p.grad is not None and bad_values(p.grad) is not None for p in found)


def _sign(
    sink: Sink, subject: str, step: int, frames: Frames | None, value: float | None = None
) -> Sign:
    return Sign(sink=sink, subject=subject, step=step, value=value, proof=frames)


def _tame_limit(optimizer: Optimizer) -> float:
    """None is small enough for a learning rate that is infinite or NaN."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    return 0.0 if any(isinstance(r, Real) and r - r != 0 for r in rates) else TAME_LIMIT


def _gradients(optimizer: Optimizer, last: int = 0) -> list[torch.Tensor]:
    """As tensors that have a norm at memory speed; of each group all, or some of the last."""
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"][-last:]:
            gradient = parameter.grad
            if (
                type(gradient) is _Tensor
                and gradient.dtype in _FLOATING
                and gradient.layout is _strided
                and not gradient.requires_grad
                and not gradient.is_meta
            ):
                found.append(gradient)  # what `readable` would say, at a tenth of its cost
            elif gradient is not None and (values := readable(gradient)) is not None:
                found.append(_dense(values))
    return found


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout is torch.sparse_coo:
        gradient = stored_values(gradient)
    elif gradient.layout is not torch.strided:
        gradient = gradient.values()
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def _holds_infinity(parameter: torch.Tensor) -> bool:
    """And no NaN, into which an update by it would turn."""
    values = readable(parameter)
    return values is not None and has_nonfinite(values) and not bool(values.isnan().any())


def _question(loss: torch.Tensor) -> torch.Tensor | None:
    """One number that tells what there is to know of a loss; None of one without any."""
    if not (loss.is_floating_point() or loss.is_complex()):
        return None
    return loss if loss.numel() == 1 and loss.is_floating_point() else worst(loss)


def _is_huge(values: list[float]) -> bool:
    return any(abs(v) > LARGE_LOSS for v in values)


def _is_nonfinite(norm: torch.Tensor) -> bool:
    value = number(norm)
    return value - value != 0


def _gradient_name(optimizer: Optimizer, which: int) -> str:
    named = [
        name
        for name, p in parameters(optimizer)
        if p.grad is not None and readable(p.grad) is not None
    ]
    return f"gradient of {named[which] if which < len(named) else 'a parameter'}"
