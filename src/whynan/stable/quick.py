"""A second way through a function for eager mode: few passes, and a gradient that reuses them.

Operations that autograd records cost a pass each way, and `torch.where` on a CPU as much as three
exponentials (torch 2.13). Here forward works in place on what it makes and keeps what backward
needs. The plain form still serves `torch.func` and derivatives of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whynan.seam.members import has_transforms

Forward = Callable[..., tuple[Tensor, ...]]
Backward = Callable[..., tuple[Tensor | None, ...]]


def quick(
    plain: Callable[..., Tensor], forward: Forward, backward: Backward, *, compiled: bool = True
) -> Callable[..., Tensor]:
    """`plain(*tensors, *settings)`, faster where nothing but ordinary autograd is at work.

    `forward` takes the same and returns the result and what to keep; `backward` takes the gradient,
    what was kept and which of the tensors want one. It may write into what was kept only if it
    made that itself, because backward can run twice. `compiled`: take this way there, too.
    """

    class Quick(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Tensor:
            result, *kept = forward(*given)
            ctx.given = sum(isinstance(x, Tensor) for x in given)
            ctx.settings = given[ctx.given :]
            ctx.save_for_backward(*given[: ctx.given], *kept)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            wanted = ctx.needs_input_grad
            given, kept = ctx.saved_tensors[: ctx.given], ctx.saved_tensors[ctx.given :]
            if torch.compiler.is_compiling() or not torch.is_grad_enabled():
                slopes = backward(*grads, *kept, wanted=wanted[: ctx.given])
                return *slopes, *(None for _ in ctx.settings)
            again = [*given, *ctx.settings]
            places = [i for i, want in enumerate(wanted) if want]

            def redo(*xs: Tensor) -> Tensor:
                for i, x in zip(places, xs, strict=True):
                    again[i] = x
                return plain(*again)

            found = iter(torch.func.vjp(redo, *(again[i] for i in places))[1](*grads))
            return tuple(next(found) if want else None for want in wanted)

    def apply(*given: Any) -> Tensor:
        if has_transforms() or (torch.compiler.is_compiling() and not compiled):
            return plain(*given)
        # Not only for speed: torch.compile (2.13) miscounts the arguments of a Function that
        # nobody wants a gradient of.
        if not (torch.is_grad_enabled() and any(_wants_gradient(x) for x in given)):
            return forward(*given)[0]
        result: Tensor = Quick.apply(*given)  # type: ignore[no-untyped-call] # torch's own
        return result

    return apply


def _wants_gradient(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def quick_slopes(plain: Callable[..., Tensor], forward: Forward) -> Callable[..., Tensor]:
    """The same for an elementwise function: `forward` returns its value and its slopes.

    Compiled, the plain form is better: the compiler would keep a mask for backward, whose
    unpacking costs more than to compute anew (torch 2.13).
    """

    def backward(
        grad: Tensor, *slopes: Tensor, wanted: tuple[bool, ...]
    ) -> tuple[Tensor | None, ...]:
        return tuple(grad * s if want else None for s, want in zip(slopes, wanted, strict=True))

    return quick(plain, forward, backward, compiled=False)


def is_plain(x: Tensor) -> bool:
    """Whether x has values that Python may look at."""
    if has_transforms() or torch.compiler.is_compiling():
        return False
    return type(x) in (Tensor, torch.nn.Parameter)


def buffer(a: Tensor) -> Tensor | None:
    """For `out=`: a itself, where nobody else looks at the operations."""
    return None if has_transforms() or torch.compiler.is_compiling() else a


def above(a: Tensor, x: Tensor, limit: float) -> Tensor:
    """a where x > limit or is NaN, else 0: `torch.where` at a tenth of its time on a CPU.

    `hardshrink_backward` and `hardtanh_backward`, which look as apt, drop a NaN in x where they
    are vectorised (torch 2.13).
    """
    chosen: Tensor = torch.ops.aten.threshold_backward(a, x, limit)
    return chosen


def keep_above(a: Tensor, x: Tensor, limit: float) -> Tensor:
    """The same, in place of a where that can be."""
    if buffer(a) is None:
        return above(a, x, limit)
    torch.ops.aten.threshold_backward.grad_input(a, x, limit, grad_input=a)
    return a


def keep_up_to(a: Tensor, x: Tensor, limit: float) -> Tensor:
    """a, in place where that can be, where -1 < x <= limit; else 0, or NaN where x is NaN and the
    operation is not vectorised."""
    ends = -1.0, limit * (1 + torch.finfo(x.dtype).eps)
    if buffer(a) is None:
        chosen: Tensor = torch.ops.aten.hardtanh_backward(a, x, *ends)
        return chosen
    torch.ops.aten.hardtanh_backward.grad_input(a, x, *ends, grad_input=a)
    return a
