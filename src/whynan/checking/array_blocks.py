"""Any other array library to `Tally`, through the Python array API standard."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

from whynan.checking.dtypes import limits_of
from whynan.checking.tally import Tally


def namespace_of(x: Any) -> Any | None:
    """The array-API namespace of an array; None when it is not one.

    CuPy before version 14 has arrays without `__array_namespace__`; its top module has the same
    functions under the same names. A library is never imported here: its array proves it loaded.
    """
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    library: ModuleType | None = sys.modules.get(type(x).__module__.split(".")[0])
    if hasattr(x, "dtype") and hasattr(x, "shape") and hasattr(library, "isfinite"):
        return library
    return None


def dtype_name(x: Any) -> str:
    """`float32`, whatever the library calls it."""
    name = getattr(x.dtype, "name", None) or str(x.dtype)
    return name.rsplit(".", 1)[-1].rstrip("'>")


def tally_namespace(x: Any, xp: Any) -> Tally:
    """Statistics in a handful of whole-array calls; only single numbers leave the device."""
    dtype = dtype_name(x)
    size = math.prod(x.shape)
    if size == 0 or dtype == "bool":
        return Tally(seen=size)
    if dtype.startswith("complex"):
        return _complex(x, xp)
    x = xp.reshape(x, (-1,))
    if not dtype.startswith(("float", "bfloat")):
        # JAX warns when it is asked for more than the 32 bits it computes with by default.
        float_type = xp.float32 if "jax" in type(x).__module__ else xp.float64
        wide = xp.astype(x, float_type) if hasattr(xp, "astype") else x.astype(float_type)
        return _finite(wide, x, xp, dtype)
    finite = xp.isfinite(x)
    if bool(xp.all(finite)):
        return _finite(x, x, xp, dtype)
    nan, wrong = xp.isnan(x), ~finite
    nans = int(xp.sum(_as_int(nan, xp)))
    posinf = int(xp.sum(_as_int(xp.isinf(x) & (x > 0), xp)))
    kept = x[finite]
    tally = _finite(kept, kept, xp, dtype) if kept.shape[0] else Tally()
    tally.seen = size
    tally.nan, tally.posinf = nans, posinf
    tally.neginf = size - tally.finite - nans - posinf
    tally.first_is_nan = nans > 0
    tally.first_bad = int(xp.argmax(_as_int(nan if nans else wrong, xp)))
    if tally.far is not None:
        tally.far = int(xp.nonzero(finite)[0][tally.far])
    return tally


def _complex(x: Any, xp: Any) -> Tally:
    pairs = xp.stack([xp.reshape(xp.real(x), (-1,)), xp.reshape(xp.imag(x), (-1,))], axis=-1)
    return tally_namespace(pairs, xp).halved()


def _finite(x: Any, original: Any, xp: Any, dtype: str) -> Tally:
    limits = limits_of(dtype)
    size = xp.abs(x)
    zeros = int(xp.sum(_as_int(original == 0, xp)))
    small = int(xp.sum(_as_int(size < limits.tiny, xp))) if limits else zeros
    reach = float(xp.max(size)) or 1.0
    scaled = x / reach  # squares and sums of large values overflow
    mean, spread = float(xp.mean(scaled)) * reach, float(xp.std(scaled)) * reach
    return Tally(
        seen=x.shape[0],
        finite=x.shape[0],
        min=float(xp.min(x)),
        max=float(xp.max(x)),
        mean=mean,
        std=spread,
        zeros=zeros,
        subnormals=small - zeros,
        negatives=int(xp.sum(_as_int(x < 0, xp))),
        far=int(xp.argmax(size)),
    )


def _as_int(mask: Any, xp: Any) -> Any:
    return xp.astype(mask, xp.int32) if hasattr(xp, "astype") else mask.astype(xp.int32)
