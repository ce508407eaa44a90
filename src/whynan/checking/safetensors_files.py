"""Safetensors: a JSON header, then plain bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whynan.checking.spans import BITS, Entry, FileSpan, Unreadable, tally_span
from whynan.checking.tally import Tally

LARGEST_HEADER = 100_000_000  # the format's own limit
TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip


def safetensors_entries(path: Path) -> list[Entry]:
    """Every tensor, in the order in which they lie in the file."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise Unreadable("corrupt or truncated: its header is longer than the file")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("corrupt: its header is not JSON") from None
    if not isinstance(header, dict):
        raise Unreadable("corrupt: its header is not a table of tensors")
    header.pop("__metadata__", None)
    data = FileSpan(path, 8 + length, size - 8 - length)
    entries = [_entry(name, described, data) for name, described in header.items()]
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _entry(name: str, described: Any, data: FileSpan) -> tuple[int, Entry]:
    import numpy as np

    try:
        code, shape, (start, stop) = (described[k] for k in ("dtype", "shape", "data_offsets"))
        whole = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        raise Unreadable(f"corrupt: tensor {name:.60} is not described in full")
    if code not in TYPES:
        raise Unreadable(f"tensor {name:.60} has type {code!r:.20}, which is not known")
    dtype = TYPES[code]
    wanted = math.prod(shape) * np.dtype(BITS[dtype]).itemsize
    if not start <= stop <= data.size:
        raise Unreadable(f"truncated: tensor {name:.60} ends {stop - data.size:,} bytes behind the file")  # fmt: skip
    if stop - start != wanted:
        raise Unreadable(f"corrupt: tensor {name:.60} has {stop - start:,} bytes, its shape needs {wanted:,}")  # fmt: skip

    def tally(progress: Callable[[int], None]) -> Tally:
        return tally_span(data, start, stop, dtype, progress)

    return start, Entry(name=name, shape=tuple(shape), dtype=dtype, size=wanted, tally=tally)
