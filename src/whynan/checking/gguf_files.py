"""GGUF: the tensors of a quantised language model; of packed blocks, their scales.

A packed weight is a small integer times the scale of its block, so only a scale can be NaN or
infinite, and then every weight of its block is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from whynan.checking.spans import BITS, Entry, FileSpan, Unreadable, tally_span
from whynan.checking.tally import Tally

MOST = 1 << 20  # tensors, or facts about the model
LONGEST = 1 << 28  # bytes of one text or list of the header
PLAIN = {
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64",
    30: "bfloat16",
}  # fmt: skip
NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by kind
TEXT, LIST = 8, 9


@dataclass(frozen=True, slots=True)
class Packed:
    """How a block lies in the file: its weights, its bytes, and where its float16 scales are."""

    name: str
    weights: int
    size: int
    at: int
    scales: int


PACKED = {
    2: Packed("Q4_0", 32, 18, 0, 1), 3: Packed("Q4_1", 32, 20, 0, 2),
    6: Packed("Q5_0", 32, 22, 0, 1), 7: Packed("Q5_1", 32, 24, 0, 2),
    8: Packed("Q8_0", 32, 34, 0, 1), 10: Packed("Q2_K", 256, 84, 80, 2),
    11: Packed("Q3_K", 256, 110, 108, 1), 12: Packed("Q4_K", 256, 144, 0, 2),
    13: Packed("Q5_K", 256, 176, 0, 2), 14: Packed("Q6_K", 256, 210, 208, 1),
}  # fmt: skip


def gguf_entries(path: Path) -> list[Entry]:
    """Every tensor, in the order in which the header names them."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        try:
            described, alignment = _header(file)
        except struct.error:
            raise Unreadable("truncated: it ends inside its header") from None
        start = -(-file.tell() // alignment) * alignment
    data = FileSpan(path, start, max(size - start, 0))
    return [_entry(name, shape, kind, offset, data) for name, shape, kind, offset in described]


def _header(file: IO[bytes]) -> tuple[list[tuple[str, tuple[int, ...], int, int]], int]:
    if file.read(4) != b"GGUF":
        raise Unreadable("not a GGUF file: it begins otherwise")
    version, tensors, facts = _take(file, "<IQQ")
    if version not in (2, 3):
        raise Unreadable(f"GGUF version {version} is not known; 2 and 3 are read")
    if max(tensors, facts) > MOST:
        raise Unreadable("corrupt: its header promises more than any model has")
    alignment = 32
    for _ in range(facts):
        name = _text(file)
        (kind,) = _take(file, "<I")
        if name == "general.alignment" and kind == 4:
            (alignment,) = _take(file, "<I")
        else:
            _pass(file, kind)
    if not 0 < alignment <= 1 << 16:
        raise Unreadable(f"corrupt: an alignment of {alignment:,}")
    return [_described(file) for _ in range(tensors)], alignment


def _described(file: IO[bytes]) -> tuple[str, tuple[int, ...], int, int]:
    name = _text(file)
    (dims,) = _take(file, "<I")
    if dims > 8:
        raise Unreadable(f"corrupt: tensor {name:.60} has {dims:,} dimensions")
    shape = _take(file, f"<{dims}Q")
    kind, offset = _take(file, "<IQ")
    return name, tuple(reversed(shape)), kind, offset  # the fastest dimension is named first


def _take(file: IO[bytes], form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: IO[bytes]) -> str:
    (length,) = _take(file, "<Q")
    return _bytes(file, length).decode("utf-8", "replace")


def _bytes(file: IO[bytes], length: int) -> bytes:
    if length > LONGEST:
        raise Unreadable("corrupt: a text in its header is longer than any model's")
    found = file.read(length)
    if len(found) < length:
        raise Unreadable("truncated: it ends inside its header")
    return found


def _pass(file: IO[bytes], kind: int, depth: int = 0) -> None:
    """Over a fact about the model, which is not ours to judge."""
    if kind in NUMBERS:
        _bytes(file, NUMBERS[kind])
    elif kind == TEXT:
        _text(file)
    elif kind == LIST and depth < 4:
        inner, count = _take(file, "<IQ")
        if inner in NUMBERS:
            _bytes(file, count * NUMBERS[inner])
            return
        for _ in range(count):
            _pass(file, inner, depth + 1)
    else:
        raise Unreadable(f"corrupt: a fact of kind {kind} in its header")


def _entry(name: str, shape: tuple[int, ...], kind: int, offset: int, data: FileSpan) -> Entry:
    import numpy as np

    if kind in PLAIN:
        dtype = PLAIN[kind]
        stop = offset + math.prod(shape) * np.dtype(BITS[dtype]).itemsize
        _need(name, stop, data)

        def plainly(progress: Callable[[int], None]) -> Tally:
            return tally_span(data, offset, stop, dtype, progress)

        return Entry(name=name, shape=shape, dtype=dtype, size=stop - offset, tally=plainly)
    if kind not in PACKED:
        why = f"packed as type {kind}, which is not known"
        return Entry(name=name, shape=shape, dtype="", size=0, tally=lambda _: Tally(), unread=why)
    packed = PACKED[kind]
    blocks, rest = divmod(math.prod(shape), packed.weights)
    if rest:
        raise Unreadable(f"corrupt: tensor {name:.60} is not made of whole blocks of {packed.name}")
    stop = offset + blocks * packed.size
    _need(name, stop, data)

    def scales(progress: Callable[[int], None]) -> Tally:
        return _tally_scales(data, offset, stop, packed, progress)

    return Entry(
        name=f"{name} (scales of {packed.name})", shape=(blocks, packed.scales), dtype="float16",
        size=stop - offset, tally=scales,
    )  # fmt: skip


def _need(name: str, stop: int, data: FileSpan) -> None:
    if stop > data.size:
        raise Unreadable(f"truncated: tensor {name:.60} ends {stop - data.size:,} bytes behind the file")  # fmt: skip


def _tally_scales(
    data: FileSpan, start: int, stop: int, packed: Packed, progress: Callable[[int], None]
) -> Tally:
    import numpy as np

    from whynan.checking.numpy_blocks import tally_array

    total = Tally()
    step = packed.size * (1 << 14)  # whole blocks, some megabytes
    for at in range(start, stop, step):
        end = min(at + step, stop)
        raw = b"".join(bytes(piece) for piece in data.pieces(at, end))
        rows = np.frombuffer(raw, np.uint8).reshape(-1, packed.size)
        found = rows[:, packed.at : packed.at + 2 * packed.scales]
        total.merge(tally_array(np.ascontiguousarray(found).view("<f2")))
        progress(end - at)
    return total
