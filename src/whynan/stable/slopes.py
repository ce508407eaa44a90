"""Elementwise functions given by their value and their slope.

The gradient of a two-branch formula, left to autograd, costs several times the naive form. With
the slope written down it costs about the same and keeps its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Formula = Callable[[Tensor], Tensor]


def with_slope(value: Formula, slope: Formula) -> Formula:
    """A function for eager use, `torch.compile`, `torch.func` and any order of derivative.

    `value` gets a tensor without gradient and may work in place on what it makes itself; `slope`
    must be differentiable in turn.
    """

    class Reverse(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return value(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grads[0] * slope(x)

    class Both(Reverse):
        @staticmethod
        def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return tangents[0] * slope(x)

    def apply(x: Tensor) -> Tensor:
        # torch.compile (2.13) refuses a function with a forward-mode rule of its own.
        kind = Reverse if torch.compiler.is_compiling() else Both
        result: Tensor = kind.apply(x)  # type: ignore[no-untyped-call] # torch's own
        return result

    return apply
