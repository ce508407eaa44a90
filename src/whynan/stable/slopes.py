"""Elementwise functions given by their value and their slopes.

The gradient of a two-branch formula, left to autograd, costs several times the naive form and
loses digits. With the slopes written down it costs about the same and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., Tensor]
Slopes = Callable[..., tuple[Tensor, ...]]


def with_slopes(value: Formula, slopes: Slopes) -> Formula:
    """A function for eager use, `torch.compile`, `torch.func` and any order of derivative.

    Its arguments have one shape. `value` gets tensors without gradient and may work in place on
    what it makes itself; `slopes`, one for each argument, must be differentiable in turn.
    """

    class Reverse(torch.autograd.Function):
        generate_vmap_rule = True

        # Not wrapped: torch.compile (2.13) counts the parameters of `forward`.
        forward = staticmethod(value)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
            return tuple(grads[0] * slope for slope in slopes(*ctx.saved_tensors))

    class Both(Reverse):
        @staticmethod
        def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
            first, *rest = map(torch.mul, tangents, slopes(*ctx.saved_tensors))
            return sum(rest, first)

    def apply(*xs: Tensor) -> Tensor:
        # torch.compile (2.13) refuses a function with a forward-mode rule of its own.
        kind = Reverse if torch.compiler.is_compiling() else Both
        result: Tensor = kind.apply(*xs)  # type: ignore[no-untyped-call] # torch's own
        return result

    return apply
