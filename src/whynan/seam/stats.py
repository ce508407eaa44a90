"""Tensor to `TensorStats`, and the fastest test for a non-finite value."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from whynan.model import TensorStats
from whynan.seam.private import foreach_norm, item

ORDINARY = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
)
MAX_MATRIX = 1 << 18  # numbers, whose eigenvalues take a fraction of a second


def ordinary(x: torch.Tensor) -> torch.Tensor:
    """In a type that has arithmetic: float8, float4 and complex32 have next to none."""
    if x.dtype in ORDINARY or not (x.is_floating_point() or x.is_complex()):
        return x
    return x.to(torch.complex64 if x.is_complex() else torch.float32)


def has_nonfinite(x: torch.Tensor) -> bool:
    """Whether a floating or complex tensor holds a NaN or an infinity.

    The sum is one pass at memory speed and inherits every non-finite element; only a sum that
    is itself non-finite needs the exact look, because it may have overflowed. float16 overflows
    at 65,504, so its range is asked for instead.
    """
    if x.dtype is torch.float16:
        return x.numel() > 0 and _range_is_nonfinite(x)
    if x.dtype not in ORDINARY:
        x = ordinary(x)
    total = x.sum().item()
    if isinstance(total, complex):
        return not cmath.isfinite(total) and _exactly(torch.view_as_real(x.resolve_conj()))
    return total - total != 0 and _exactly(x)


def is_only_below(x: torch.Tensor) -> bool:
    """Whether -inf is all that is non-finite in it: the logarithm of 0, a masked score."""
    if x.is_complex():
        return False
    values = ordinary(x.detach())
    return not bool((values.isnan() | (values == math.inf)).any())


def look(x: torch.Tensor) -> tuple[bool, float | None]:
    """(whether it holds a NaN or an infinity, its 2-norm where that comes in the same pass)."""
    numel = x.numel()
    if x.dtype in NORMED and numel <= MEDIUM_NUMEL:
        size = abs(number(x)) if numel == 1 else number(_vector_norm(x))
    elif _suits_dot(x):
        size = _norm_of_large(x)
    else:
        return has_nonfinite(x), None
    if size - size == 0:
        return False, size
    return _exactly(x), None


MEDIUM_NUMEL = 1 << 16  # beyond it a dot product or a sum is faster than a norm
LARGE_NUMEL = 1 << 17
DOT_TYPES = (torch.float32, torch.float64)
NORMED = (torch.float32, torch.float64, torch.bfloat16)


number = item  # as torch made it: nobody has wrapped it
_vector_norm = torch.linalg.vector_norm


def norms(tensors: list[torch.Tensor]) -> list[float]:
    """The 2-norm of each dense floating tensor; on a device with one transfer for them all.

    A non-finite element makes its norm non-finite; so may an overflow of the squares.
    """
    if not tensors:
        return []
    if not (tensors[0].is_cpu and tensors[-1].is_cpu):
        return fetched(launched_norms(tensors))
    return [  # nothing to wait for, and on a CPU one call for them all is no faster
        number(_vector_norm(t)) if t.numel() < LARGE_NUMEL else _norm_of_large(t) for t in tensors
    ]


def _norm_of_large(t: torch.Tensor) -> float:
    """`dot` runs at memory speed, three times as fast as a norm, but costs more to call."""
    if not _suits_dot(t):
        return number(_vector_norm(t))
    flat = t.view(-1)
    return math.sqrt(abs(number(torch.dot(flat, flat))))


def _suits_dot(t: torch.Tensor) -> bool:
    return t.dtype in DOT_TYPES and t.device.type == "cpu" and t.is_contiguous()


def launched_norms(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same where they lie, without waiting: one kernel for those of one kind. A norm of half
    precision is taken in float32, which it cannot overflow."""
    found: dict[int, torch.Tensor] = {}
    for (_, kind), members in _alike(tensors).items():
        wide = torch.float32 if kind.itemsize < 4 else None
        made = foreach_norm([tensors[i] for i in members], 2, wide)
        found.update(zip(members, made, strict=True))
    return [found[i] for i in range(len(tensors))]


def fetched(scalars: Sequence[torch.Tensor]) -> list[float]:
    """Single numbers, wherever they lie, with one wait for them all."""
    found: dict[int, float] = {}
    parts: list[torch.Tensor] = []
    order: list[int] = []
    has_doubles = any(s.dtype is torch.float64 for s in scalars)  # which MPS has not
    for (device, _), members in _alike(scalars).items():
        if device.type == "cpu":
            found.update((i, number(scalars[i])) for i in members)
            continue
        together = torch.stack([scalars[i].reshape(()) for i in members])
        parts.append(together.to(torch.float64 if has_doubles else torch.float32))
        order += members
    if parts:
        there = parts[0].device
        joined = torch.cat([p.to(there) for p in parts]) if len(parts) > 1 else parts[0]
        found.update(zip(order, joined.tolist(), strict=True))
    return [found[i] for i in range(len(scalars))]


def worst(x: torch.Tensor) -> torch.Tensor | None:
    """A single number, where the tensor lies, that is non-finite if and only if an element is: its
    largest magnitude. None of an empty tensor."""
    if not x.numel():
        return None
    x = ordinary(x)
    parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    found: torch.Tensor = _vector_norm(parts, math.inf)
    return found


def _alike(tensors: Sequence[torch.Tensor]) -> dict[tuple[torch.device, torch.dtype], list[int]]:
    """Which of them have one device and one type."""
    found: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, tensor in enumerate(tensors):
        found.setdefault((tensor.device, tensor.dtype), []).append(index)
    return found


def _range_is_nonfinite(x: torch.Tensor) -> bool:
    low, high = torch.aminmax(x)
    spread = high.item() - low.item()
    return spread - spread != 0


def _exactly(x: torch.Tensor) -> bool:
    return not bool(torch.isfinite(x).all())


def _dtype_name(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


@torch.no_grad()
def stats_of(x: torch.Tensor) -> TensorStats:
    """Count what matters in a tensor; the range is that of its finite values."""
    shape, dtype, device = tuple(x.shape), _dtype_name(x), str(x.device)
    if x.layout is not torch.strided or x.is_quantized:
        return TensorStats(shape=shape, dtype=dtype, device=device)
    x = ordinary(x.detach())
    if x.is_complex() and x.numel():
        return replace(_of_complex(x.resolve_conj().resolve_neg()), dtype=dtype)
    if x.numel() == 0 or x.dtype is torch.bool:
        return TensorStats(shape=shape, dtype=dtype, device=device)
    if not x.is_floating_point():
        low, high = torch.aminmax(x)
        return TensorStats(
            shape=shape, dtype=dtype, device=device, min=float(low), max=float(high),
            zeros=int((x == 0).sum()), negatives=int((x < 0).sum()),
        )  # fmt: skip
    finite = torch.isfinite(x)
    kept = x if bool(finite.all()) else x[finite]
    low_high = torch.aminmax(kept) if kept.numel() else None
    return TensorStats(
        shape=shape,
        dtype=dtype,
        device=device,
        min=float(low_high[0]) if low_high else None,
        max=float(low_high[1]) if low_high else None,
        nan=int(torch.isnan(x).sum()),
        posinf=int(torch.isposinf(x).sum()),
        neginf=int(torch.isneginf(x).sum()),
        zeros=int((x == 0).sum()),
        negatives=int((x < 0).sum()),
    )


def index_of(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Where the element stands that is at that place in order."""
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


def _of_complex(x: torch.Tensor) -> TensorStats:
    """A number is counted once, whichever of its parts is bad; the range is that of the parts."""
    nan, parts = torch.isnan(x), torch.view_as_real(x)
    infinite = ~torch.isfinite(x) & ~nan
    positive = (parts == math.inf).any(dim=-1) & infinite
    kept = parts[torch.isfinite(parts)]
    low_high = torch.aminmax(kept) if kept.numel() else None
    return TensorStats(
        shape=tuple(x.shape),
        dtype=_dtype_name(x),
        device=str(x.device),
        min=float(low_high[0]) if low_high else None,
        max=float(low_high[1]) if low_high else None,
        nan=int(nan.sum()),
        posinf=int(positive.sum()),
        neginf=int((infinite & ~positive).sum()),
        zeros=int((x == 0).sum()),
    )


@torch.no_grad()
def dead_columns(x: torch.Tensor | None) -> tuple[int, ...]:
    """Of a table, the columns in which nothing is finite."""
    if x is None or x.dim() != 2 or len(x) < 2 or not x.is_floating_point():
        return ()
    dead = (~torch.isfinite(ordinary(x))).all(dim=0)
    return tuple(int(i) for i in dead.nonzero().reshape(-1))


@torch.no_grad()
def eigenvalues_of(x: torch.Tensor | None) -> tuple[float, float] | None:
    """The lowest and the largest of a symmetric matrix, or of several, if that is soon computed."""
    if x is None or x.dim() < 2 or not x.is_floating_point() or x.shape[-1] != x.shape[-2]:
        return None
    if not 0 < x.numel() <= MAX_MATRIX or has_nonfinite(x):
        return None
    wide = x.detach().cpu().double()
    if not torch.allclose(wide, wide.mT, rtol=1e-4):
        return None
    try:
        values = torch.linalg.eigvalsh(wide)
    except RuntimeError:  # it did not converge
        return None
    return float(values.min()), float(values.max())


@torch.no_grad()
def nonfinite_indices(x: torch.Tensor, most: int) -> list[tuple[int, ...]]:
    """The first NaN or infinity, and up to `most` spread evenly over all of them."""
    first = first_nonfinite(x)
    if first is None or x.numel() == 1:
        return [] if first is None else [first]
    every = (~torch.isfinite(ordinary(x.detach()))).reshape(-1).nonzero().reshape(-1)
    chosen = every[_spread(len(every), most)]
    return list(dict.fromkeys([first, *(index_of(p, x.shape) for p in chosen.tolist())]))


def _spread(count: int, most: int) -> list[int]:
    """At most so many places out of these, the first and the last among them."""
    few = min(most, count)
    return [round(i * (count - 1) / max(1, few - 1)) for i in range(few)]


@torch.no_grad()
def first_nonfinite(x: torch.Tensor, *, prefer_nan: bool = True) -> tuple[int, ...] | None:
    """Index of the first NaN, else of the first infinity; None when all is finite."""
    if x.numel() == 0 or not (x.is_floating_point() or x.is_complex()):
        return None
    x = ordinary(x.detach())
    if x.numel() == 1:
        return None if cmath.isfinite(x.item()) else (0,) * x.dim()
    masks = [torch.isnan(x), ~torch.isfinite(x)] if prefer_nan else [~torch.isfinite(x)]
    for mask in masks:
        flat = mask.reshape(-1)
        if bool(flat.any()):
            return index_of(int(flat.to(torch.uint8).argmax()), x.shape)
    return None
