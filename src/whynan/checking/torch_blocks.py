"""Torch tensors to `Tally`: through NumPy on a CPU, in a few kernels and one transfer elsewhere."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from whynan.checking.array_blocks import dtype_name
from whynan.checking.dtypes import limits_of
from whynan.checking.numpy_blocks import BLOCK, tally_array, tally_block
from whynan.checking.tally import Tally

if TYPE_CHECKING:
    import torch


def tally_tensor(x: torch.Tensor) -> Tally:
    """Statistics of any tensor that holds values."""
    torch: Any = sys.modules["torch"]

    with torch.no_grad():
        x = x.detach()
        if x.is_quantized:
            x = x.dequantize()
        if x.layout is torch.sparse_coo:
            return _sparse(x.coalesce())
        if x.layout is not torch.strided:
            x = x.to_dense()
        if x.device.type == "meta":
            return Tally()
        if x.is_complex():
            return tally_tensor(torch.view_as_real(x.resolve_conj())).halved()
        if x.is_neg():
            x = x.resolve_neg()
        return _on_cpu(x) if x.device.type == "cpu" else on_device(x)


def _sparse(x: torch.Tensor) -> Tally:
    """Of the stored values; positions are those in the whole tensor."""
    values = x.values()
    tally = tally_tensor(values)
    inner = math.prod(values.shape[1:])  # of a hybrid tensor each stored entry is an array

    def in_whole(position: int | None) -> int | None:
        if position is None:
            return None
        entry, rest = divmod(position, inner)
        at = 0
        for size, index in zip(x.shape, x.indices()[:, entry].tolist(), strict=False):
            at = at * size + int(index)
        return at * inner + rest

    return replace(tally, first_bad=in_whole(tally.first_bad), far=in_whole(tally.far))


def _on_cpu(x: torch.Tensor) -> Tally:
    """Half types are widened by torch, which does it faster than NumPy."""
    torch: Any = sys.modules["torch"]

    dtype = dtype_name(x)
    if not x.is_floating_point() or x.dtype in (torch.float32, torch.float64):
        return tally_array(x.numpy())
    flat = x.reshape(-1)
    total = Tally()
    with np.errstate(all="ignore"):
        for start in range(0, flat.numel(), BLOCK):
            block = flat[start : start + BLOCK].to(torch.float32)
            total.merge(tally_block(block.numpy(), dtype))
    return total


def on_device(x: torch.Tensor) -> Tally:
    """One transfer when every value is finite, a second one when not."""
    torch: Any = sys.modules["torch"]

    if x.numel() == 0:
        return Tally()
    if not x.is_floating_point() or dtype_name(x).startswith("float8"):
        x = x.to(torch.float32)
    limits = limits_of(dtype_name(x))
    finite = torch.isfinite(x)
    size = torch.abs(x)
    kept = torch.where(finite, x, 0).to(torch.float32 if x.dtype != torch.float64 else x.dtype)
    n = finite.sum()
    scale = kept.abs().amax().clamp(min=torch.finfo(kept.dtype).tiny)
    mean = (kept / scale).sum() / n.clamp(min=1)
    std = (torch.where(finite, kept / scale - mean, 0).square().sum() / n.clamp(min=1)).sqrt()
    numbers = [
        torch.where(finite, x, math.inf).amin(),
        torch.where(finite, x, -math.inf).amax(),
        mean * scale,
        std * scale,
        n,
        torch.isnan(x).sum(),
        (x == math.inf).sum(),
        (x == 0).sum(),
        (size < (limits.tiny if limits else 0.0)).sum(),
        (x < 0).sum(),
        torch.where(finite, size, -1).reshape(-1).argmax(),
        (torch.isnan(x).to(torch.int8) * 2 + torch.isinf(x)).reshape(-1).argmax(),
    ]
    # float64 keeps every count exact; Apple's GPUs have none, there the numbers go one by one.
    if x.device.type == "mps":
        values = [float(v) for v in numbers]
    else:
        values = torch.stack([v.to(torch.float64) for v in numbers]).tolist()
    low, high, mean_, std_, n_, nan, posinf, zeros, small, negative, far, first = values
    total, bad = x.numel(), x.numel() - int(n_)
    neginf = bad - int(nan) - int(posinf)
    return Tally(
        seen=total, finite=int(n_), min=low, max=high, mean=mean_, std=std_,
        nan=int(nan), posinf=int(posinf), neginf=neginf, zeros=int(zeros),
        subnormals=int(small) - int(zeros), negatives=int(negative) - neginf,
        first_bad=int(first) if bad else None, first_is_nan=nan > 0, far=int(far) if n_ else None,
    )  # fmt: skip
