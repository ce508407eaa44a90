"""Which type to compute in: half inputs in float32, everything else as it is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def widen(x: Tensor) -> tuple[torch.dtype, Tensor]:
    """The type of the result, and the operand in the type to compute in."""
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    return dtype, x.to(torch.float32 if dtype in HALF else dtype)


def widen_pair(a: Tensor | float, b: Tensor | float) -> tuple[torch.dtype, Tensor, Tensor]:
    """The same for two operands by torch's promotion; one of them may be a number."""
    dtype = _common(a, b)
    work = torch.float32 if dtype in HALF else dtype
    # The type at once: a number would otherwise pass through float32.
    return dtype, torch.as_tensor(a, dtype=work), torch.as_tensor(b, dtype=work)


def together(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the shape that they broadcast to."""
    both: tuple[Tensor, Tensor] = torch.broadcast_tensors(a, b)  # type: ignore[no-untyped-call] # torch's own
    return both


def power_of_two_for(size: Tensor) -> Tensor:
    """What brings a magnitude near 1 when multiplied by it, without a change of any digit."""
    most = -math.frexp(torch.finfo(size.dtype).tiny)[1]
    exponent = torch.frexp(size.detach().nan_to_num(nan=1.0))[1].clamp(-most, most)
    return torch.exp2(-exponent.to(size.dtype))


def _common(a: Tensor | float, b: Tensor | float) -> torch.dtype:
    """`torch.result_type` for floating results, which `torch.compile` cannot trace."""
    floating = [t for t in (a, b) if isinstance(t, Tensor) and t.dtype.is_floating_point]
    if any(t.dim() for t in floating):
        floating = [t for t in floating if t.dim()]
    if not floating:
        return torch.get_default_dtype()
    return torch.promote_types(floating[0].dtype, floating[-1].dtype)
