"""NumPy arrays to `Tally`: several looks at each block while it is in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from whynan.checking.dtypes import limits_of
from whynan.checking.tally import Tally

# 256 KB of float32: every pass but the first reads from the cache.
BLOCK = 1 << 16


def tally_array(array: np.ndarray[Any, Any], dtype: str = "") -> Tally:
    """Statistics of an array of any layout; `dtype` names it where NumPy has no name for it."""
    total = Tally()
    dtype = dtype or array.dtype.name
    if array.dtype.kind not in "fciub" and limits_of(dtype) is None:
        return total
    with np.errstate(all="ignore"):
        for block in blocks(array):
            total.merge(tally_block(widened(block, dtype), dtype))
    return total.halved() if array.dtype.kind == "c" else total


def blocks(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Flat pieces in reading order, without a copy of the whole."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for start in range(0, flat.size, BLOCK):
            yield flat[start : start + BLOCK]
    elif array.size:
        yield from np.nditer(
            array, flags=["external_loop", "buffered"], order="C", buffersize=BLOCK
        )


def widened(block: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """As float32, float64 or integers, the types that NumPy computes in at full speed."""
    if not block.dtype.isnative:
        block = block.astype(block.dtype.newbyteorder("="))
    if block.dtype.kind == "c":
        return np.ascontiguousarray(block).view(block.real.dtype)
    if dtype == "bfloat16":
        return (block.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "float16":
        # NumPy's own cast is not vectorised: three times slower than looking the bits up.
        return _tables(dtype).take(block.view(np.uint16))
    if dtype.startswith("float8"):
        return _tables(dtype).take(block.view(np.uint8))
    if block.dtype.kind == "f" and block.dtype not in (np.float32, np.float64):
        return block.astype(np.float64)
    return block


@cache
def _tables(dtype: str) -> np.ndarray[Any, Any]:
    """The value of every bit pattern of a small type."""
    if dtype == "float16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    return np.array([float8(bits, dtype) for bits in range(256)], np.float32)


def float8(bits: int, dtype: str) -> float:
    """The number that eight bits stand for.

    >>> float8(0x7E, "float8_e4m3fn"), float8(0x7C, "float8_e5m2"), float8(0x80, "float8_e4m3fnuz")
    (448.0, inf, nan)
    """
    if dtype == "float8_e8m0fnu":  # a power of two, for the scale of a block
        return math.nan if bits == 0xFF else 2.0 ** (bits - 127)
    fraction_bits = int(dtype[10])
    kind = dtype[11:]  # "", "fn": no infinity; "fnuz": neither infinity nor -0
    bias = {"float8_e4m3fn": 7, "float8_e5m2": 15, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 16}
    sign = -1.0 if bits & 0x80 else 1.0
    exponent, fraction = (bits & 0x7F) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    if kind == "fnuz" and bits == 0x80:
        return math.nan
    if kind == "fn" and bits & 0x7F == 0x7F:
        return math.nan
    if kind == "" and exponent == (1 << (7 - fraction_bits)) - 1:
        return math.nan if fraction else sign * math.inf
    scale = float(1 << fraction_bits)
    if exponent == 0:
        return float(sign * fraction / scale * 2.0 ** (1 - bias[dtype]))
    return float(sign * (1 + fraction / scale) * 2.0 ** (exponent - bias[dtype]))


def tally_block(x: np.ndarray[Any, Any], dtype: str) -> Tally:
    """One block of float32, float64, integers or booleans."""
    if not x.size:
        return Tally()
    if x.dtype.kind in "iub":
        return _integers(x)
    near, far = int(x.argmin()), int(x.argmax())  # a NaN wins both
    if math.isfinite(x[near]) and math.isfinite(x[far]):
        return _finite(x, near, far, dtype)
    good = np.isfinite(x)
    kept = x[good]
    tally = _finite(kept, int(kept.argmin()), int(kept.argmax()), dtype) if kept.size else Tally()
    nans = np.isnan(x)
    tally.seen = x.size
    tally.nan = int(np.count_nonzero(nans))
    tally.posinf = int(np.count_nonzero(x == np.inf))
    tally.neginf = int(np.count_nonzero(x == -np.inf))
    tally.first_is_nan = tally.nan > 0
    tally.first_bad = int((nans if tally.nan else ~good).argmax())
    if tally.far is not None:
        tally.far = int(np.nonzero(good)[0][tally.far])
    return tally


def _finite(x: np.ndarray[Any, Any], lowest: int, highest: int, dtype: str) -> Tally:
    low, high = float(x[lowest]), float(x[highest])
    mean, std = _moments(x) if low < high else (low, 0.0)
    limits = limits_of(dtype)
    tiny = limits.tiny if limits else 0.0
    small = zeros = negatives = 0
    if low < tiny and high > -tiny:
        small = int(np.count_nonzero(np.abs(x) < tiny))
        zeros = int(np.count_nonzero(x == 0)) if small else 0
    if low < 0:
        negatives = int(np.count_nonzero(x < 0)) if high >= 0 else x.size
    return Tally(
        seen=x.size, finite=x.size, min=low, max=high, mean=mean, std=std, zeros=zeros,
        subnormals=small - zeros, negatives=negatives, far=lowest if -low > high else highest,
    )  # fmt: skip


def _moments(x: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean and standard deviation.

    Products with ones and with itself run at memory speed. Where they cancel (a spread far below
    the mean), overflow or underflow, the block is read again, scaled, in float64.
    """
    total, squares = float(np.dot(x, _ones(x.dtype.name)[: x.size])), float(np.dot(x, x))
    mean = total / x.size
    m2 = squares - total * mean
    if 1e-25 < squares < 1e35 and m2 > 1e-3 * squares:
        return mean, math.sqrt(m2 / x.size)
    scale = float(np.abs(x).max()) or 1.0
    wide = x.astype(np.float64) / scale
    mean = float(wide.mean())
    wide -= mean
    return mean * scale, math.sqrt(float(np.dot(wide, wide)) / x.size) * scale


@cache
def _ones(dtype: str) -> np.ndarray[Any, Any]:
    return np.ones(BLOCK, dtype)


def _integers(x: np.ndarray[Any, Any]) -> Tally:
    mean, spread = float(x.mean(dtype=np.float64)), float(x.std(dtype=np.float64))
    return Tally(
        seen=x.size,
        finite=x.size,
        min=float(x.min()),
        max=float(x.max()),
        mean=mean,
        std=spread,
        zeros=x.size - int(np.count_nonzero(x)),
        negatives=int(np.count_nonzero(x < 0)) if x.dtype.kind == "i" else 0,
    )
