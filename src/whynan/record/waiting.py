"""Harm that the program may still deal with itself: a step that it leaves out, a value it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from whynan.model import Evidence
from whynan.record.checks import Checks
from whynan.record.patches import Patches
from whynan.record.stats import has_nonfinite, local_of


class Waiting:
    """A bad loss counts when a step is taken with its gradients, and not when they are thrown
    away. A value that the program tests for being finite counts if that ends the program."""

    def __init__(self, checks: Checks, accept: Callable[[Evidence], None]) -> None:
        self._checks = checks
        self._accept = accept
        self.losses: list[Evidence] = []
        self.asked: list[Evidence] = []

    def install(self, patches: Patches) -> None:
        before_zero_grad(patches, self._before_zero_grad)

    def _before_zero_grad(self, owner: Any) -> None:
        if self.losses:
            self._checks.quietly(lambda: self._are_dropped(owner))

    def _are_dropped(self, owner: Any) -> None:
        if drops_bad_gradients(owner):
            self.losses.clear()

    def step_is_taken(self) -> None:
        self.asked.clear()
        self.settle()

    def settle(self) -> None:
        """Nobody threw the gradients away: now their loss counts."""
        waiting = self.losses[:]
        self.losses.clear()
        for evidence in waiting:
            self._accept(evidence)

    def end(self, error: BaseException | None) -> None:
        """The program is over."""
        failed = isinstance(error, Exception) or (
            isinstance(error, SystemExit) and error.code not in (None, 0)
        )
        if failed:
            self.losses += self.asked
        self.settle()


def before_zero_grad(patches: Patches, look: Callable[[Any], None]) -> None:
    """Call back with the model or optimizer whose gradients the program is about to drop."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            look(owner)
            return original(owner, *args, **kwargs)

        return zero_grad

    patches.wrap(torch.optim.Optimizer, "zero_grad", wrap)
    patches.wrap(torch.nn.Module, "zero_grad", wrap)


def drops_bad_gradients(owner: Any) -> bool:
    return any(map(_has_bad_gradient, _parameters(owner)))


def _parameters(owner: Any) -> Iterable[torch.Tensor]:
    if isinstance(owner, torch.nn.Module):
        return owner.parameters()
    return (p for group in owner.param_groups for p in group["params"])


def _has_bad_gradient(parameter: torch.Tensor) -> bool:
    gradient = parameter.grad
    if gradient is None or gradient.layout is not torch.strided:
        return False
    return has_nonfinite(local_of(gradient).detach())
