"""TensorBoard's event files, written without its packages: they stay out of the program's process."""

from __future__ import annotations

import os
import platform
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


# ---- protobuf: a field is its number and kind, then its value ------------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative step takes ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode("utf-8", "replace"))


def _doubles(field: int, values: Iterable[float]) -> bytes:
    return _bytes(field, b"".join(struct.pack("<d", v) for v in values))


_STRING = 7  # DT_STRING


class EventFile:
    """The calls of `torch.utils.tensorboard.SummaryWriter` that whynan needs, on its own file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()  # the program may change the working directory
        self._file: BinaryIO | None = None

    def add_scalar(self, tag: str, scalar_value: float, global_step: int = 0) -> None:
        limit = 3.4028235677973366e38  # beyond it, float32 is infinite; struct would raise
        value = scalar_value if scalar_value != scalar_value else _clamped(scalar_value, limit)
        self._value(tag, global_step, _varint(2 << 3 | 5) + struct.pack("<f", value))

    def add_text(self, tag: str, text_string: str, global_step: int = 0) -> None:
        tensor = _number(1, _STRING) + _text(8, text_string)
        plugin = _bytes(1, _text(1, "text"))
        self._value(tag, global_step, _bytes(9, plugin) + _bytes(8, tensor))

    def add_histogram_raw(
        self,
        tag: str,
        min: float,  # SummaryWriter's names
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int = 0,
    ) -> None:
        ends = b"".join(
            _double(i, v) for i, v in enumerate((min, max, float(num), sum, sum_squares), 1)
        )
        buckets = _doubles(6, bucket_limits) + _doubles(7, bucket_counts)
        self._value(tag, global_step, _bytes(5, ends + buckets))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _value(self, tag: str, step: int, payload: bytes) -> None:
        summary = _bytes(1, _text(1, tag) + payload)
        self._record(_double(1, time.time()) + _number(2, step) + _bytes(5, summary))

    def _record(self, event: bytes) -> None:
        if self._file is None:
            self._file = self._opened()
            self._record(_double(1, time.time()) + _text(3, "brain.Event:2"))
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked_crc(length) + event + _masked_crc(event))

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        began = f"{int(time.time()):010d}.{platform.node()}.{os.getpid()}"
        return (self._folder / f"events.out.tfevents.{began}.whynan").open("ab", buffering=0)


def _clamped(value: float, limit: float) -> float:
    return value if abs(value) < limit else float("inf") if value > 0 else float("-inf")
