"""A computation in float64 whose values are kept to the range of another type, each as it is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from whynan.ops.table import kernel
from whynan.seam.members import schema_of
from whynan.seam.private import Mode

SUMS = ("reduction", "product", "prefix", "window")  # of the operations that add up
MARGIN = 16  # how far from the end of the range every value has to be


class Range(NamedTuple):
    """What is larger becomes infinite, what is smaller 0."""

    most: float
    least: float

    @classmethod
    def of(cls, dtype: torch.dtype, operands: float) -> Range:
        """With a margin; what is as large as the operands themselves is none of the computation's."""
        limits = torch.finfo(dtype)
        return cls(max(limits.max / MARGIN, 1.01 * operands), limits.tiny * limits.eps)

    def impose(self, tensor: Tensor) -> None:
        """In place; what fits, views of operands among it, is not written to."""
        sizes = tensor.detach().abs()
        for out, number in ((sizes > self.most, torch.inf), (sizes < self.least, 0.0)):
            out &= sizes > 0
            if out.any():
                tensor.detach()[out] *= number


class Seen(Mode):  # type: ignore[no-untyped-call]  # torch
    """Which operators a computation calls; with a range, it is held to that."""

    def __init__(self, held_to: Range | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self.called: set[str] = set()
        self.exceeds = False  # a sum does, if its parts are added in another order
        self._range = held_to

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        base = func.name().split("::")[-1].split(".")[0].strip("_")
        self.called.add(base)
        fits = self._range
        if fits is None:
            return func(*args, **kwargs)
        if kernel(base)[0].reads in SUMS and not schema_of(func).is_mutable:
            sizes = func(*map(_magnitude, args), **kwargs)
            self.exceeds |= any(float(t.max()) > fits.most for t in _floats(sizes))
        out = func(*args, **kwargs)
        for tensor in _floats(out):
            fits.impose(tensor)
        return out


def _floats(out: Any) -> list[Tensor]:
    tensors = out if isinstance(out, (list, tuple)) else (out,)
    return [t for t in tensors if isinstance(t, Tensor) and t.is_floating_point() and t.numel()]


def _magnitude(arg: Any) -> Any:
    return arg.abs() if isinstance(arg, Tensor) and arg.is_floating_point() else arg
