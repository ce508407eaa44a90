"""Where an array's bytes lie in a file, read in pieces so that memory stays bounded."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from whynan.checking.tally import Summary, Tally
from whynan.errors import WhynanError

PIECE = 1 << 20  # bytes: small enough for the cache, and a multiple of every element's size
# Element types by name, as NumPy can hold their bits.
BITS = {
    "float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "u2",
    "float8_e4m3fn": "u1", "float8_e5m2": "u1", "float8_e4m3fnuz": "u1", "float8_e5m2fnuz": "u1",
    "float8_e8m0fnu": "u1",
    "complex64": "c8", "complex128": "c16", "bool": "u1",
    "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1",
    "uint64": "u8", "uint32": "u4", "uint16": "u2", "uint8": "u1",
}  # fmt: skip


class Unreadable(WhynanError):
    """A file that cannot be checked, and why, in one line."""

    exit_code = 2


class Span(Protocol):
    """A run of bytes."""

    @property
    def size(self) -> int: ...

    def pieces(self, start: int, stop: int) -> Iterator[bytes | memoryview]: ...


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes that lie in a file as they are."""

    path: Path
    offset: int
    size: int

    def pieces(self, start: int, stop: int) -> Iterator[memoryview]:
        buffer = bytearray(min(PIECE, max(stop - start, 1)))
        view = memoryview(buffer)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + start)
            left = stop - start
            while left:
                wanted = view[: min(left, PIECE)]
                got = _fill(file, wanted)
                if got < len(wanted):
                    raise Unreadable(f"truncated: {left - got:,} bytes are missing at its end")
                left -= got
                yield wanted


def _fill(file: Any, view: memoryview) -> int:
    got = 0
    while got < len(view):
        n = file.readinto(view[got:])
        if not n:
            break
        got += n
    return got


@dataclass(frozen=True, slots=True)
class ZipSpan:
    """Bytes that are compressed in a zip archive: read from the start, in order."""

    path: Path
    name: str
    size: int
    skip: int = 0  # a header before them

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        with zipfile.ZipFile(self.path) as archive, archive.open(self.name) as file:
            _skip(file, self.skip + start)
            left = stop - start
            while left:
                piece = file.read(min(left, PIECE))
                while len(piece) < min(left, PIECE):
                    more = file.read(min(left, PIECE) - len(piece))
                    if not more:
                        raise Unreadable(f"truncated: {self.name} is shorter than it says")
                    piece += more
                left -= len(piece)
                yield piece


def _skip(file: Any, n: int) -> None:
    while n:
        got = len(file.read(min(n, PIECE)))
        if not got:
            raise Unreadable("truncated: an entry is shorter than it says")
        n -= got


def zip_span(archive: zipfile.ZipFile, path: Path, name: str) -> Span:
    """The bytes of an archive's entry: in place when it is stored, else decompressed on the way."""
    info = archive.getinfo(name)
    if info.flag_bits & 1:
        raise Unreadable(f"{name} is encrypted")
    if info.compress_type != zipfile.ZIP_STORED:
        return ZipSpan(path, name, info.file_size)
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\3\4":
        raise Unreadable(f"corrupt: {name} is not where the archive says")
    start = info.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")  # fmt: skip
    return FileSpan(path, start, info.file_size)


def open_zip(path: Path) -> zipfile.ZipFile:
    """An archive whose directory is sound: no entry counted twice, as a zip bomb does."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, UnicodeDecodeError, OverflowError) as error:  # fmt: skip
        raise Unreadable(f"corrupt or truncated archive ({error})") from None
    size = path.stat().st_size
    stored = sum(info.compress_size for info in archive.infolist())
    beyond = not all(0 <= info.header_offset < size for info in archive.infolist())
    if stored > size or beyond:
        archive.close()
        why = "lie beyond its end" if beyond else "overlap"
        raise Unreadable(f"corrupt: the archive's entries {why}")
    return archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One named array in a file; `tally` reads it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int  # bytes to read
    tally: Callable[[Callable[[int], None]], Tally]  # given a call-back for progress
    index: Callable[[int], tuple[int, ...]] | None = None  # of a position, unless in reading order
    unread: str | None = None  # why it cannot be looked at, though the others can
    text: bool = False  # words or dates, in which nothing can be bad

    def summary(self, progress: Callable[[int], None]) -> Summary:
        """Read every value."""
        import dataclasses

        tally = self.tally(progress)
        made = tally.summary(shape=self.shape, dtype=self.dtype)
        if self.index is None:
            return made
        return dataclasses.replace(
            made,
            first_bad=None if tally.first_bad is None else self.index(tally.first_bad),
            farthest=None if tally.far is None else self.index(tally.far),
        )


def tally_span(
    span: Span, start: int, stop: int, dtype: str, progress: Callable[[int], None],
    *, big_endian: bool = False,
) -> Tally:  # fmt: skip
    """Statistics of elements of one type between two byte positions."""
    import numpy as np

    from whynan.checking.numpy_blocks import tally_array

    bits = np.dtype(BITS[dtype]).newbyteorder(">" if big_endian else "<")
    total = Tally()
    for piece in span.pieces(start, stop):
        array = np.frombuffer(piece, bits)
        if big_endian:
            array = array.astype(bits.newbyteorder("="))
        total.merge(tally_array(array.view(bool) if dtype == "bool" else array, dtype))
        progress(len(piece))
    return total
