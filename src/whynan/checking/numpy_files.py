"""`.npy` and `.npz`, without ever loading a pickled object."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whynan.checking.spans import (
    BITS,
    Entry,
    FileSpan,
    Span,
    Unreadable,
    ZipSpan,
    open_zip,
    zip_span,
)
from whynan.checking.tally import Tally


def npy_entries(path: Path) -> list[Entry]:
    """The one array of a `.npy` file."""
    with open(path, "rb") as file:
        shape, fortran, dtype = _header(file)
        start = file.tell()
    span = FileSpan(path, start, path.stat().st_size - start)
    return _entries("", span, shape, fortran, dtype)


def npz_entries(path: Path) -> list[Entry]:
    """Every array of a `.npz` archive."""
    entries: list[Entry] = []
    with open_zip(path) as archive:
        for name in archive.namelist():
            if name.endswith("/"):
                continue
            if not name.endswith(".npy"):  # to leave it out would be a false all-clear
                raise Unreadable(f"holds {name:.80}, which is no array: unpack it to check it")
            entries += _member(archive, path, name)
    return entries


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> list[Entry]:
    span = zip_span(archive, path, name)
    with archive.open(name) as file:
        shape, fortran, dtype = _header(file)
        start = file.tell()
    data: Span
    if isinstance(span, FileSpan):
        data = FileSpan(path, span.offset + start, span.size - start)
    else:
        data = ZipSpan(path, name, span.size - start, skip=start)
    return _entries(name.removesuffix(".npy"), data, shape, fortran, dtype)


def _header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    import tokenize

    from numpy.lib import format as npy

    try:
        version = npy.read_magic(file)
        # 3.0 differs from 2.0 only in the encoding of field names.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (ValueError, TypeError, OverflowError, SyntaxError, EOFError, MemoryError, RecursionError, tokenize.TokenError) as error:  # fmt: skip
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreadable(f"corrupt: not a NumPy header ({reason:.80})") from None
    if dtype.hasobject:
        raise Unreadable("holds pickled Python objects, which are not opened")
    if not all(0 <= n < 1 << 62 for n in shape):
        raise Unreadable(f"corrupt: shape {shape!r:.60}")
    return shape, fortran, dtype


def _entries(
    name: str, span: Span, shape: tuple[int, ...], fortran: bool, dtype: Any
) -> list[Entry]:
    needed = math.prod(shape) * dtype.itemsize
    if needed > span.size:
        raise Unreadable(f"truncated: {needed - span.size:,} bytes are missing at its end")
    if dtype.names is None:
        return [_entry(name, span, shape, fortran, dtype, None)]
    fields = [n for n in dtype.names if dtype[n].kind in "fciub"]
    return [_entry(f"{name}.{n}" if name else n, span, shape, fortran, dtype, n) for n in fields]


def _entry(
    name: str, span: Span, shape: tuple[int, ...], fortran: bool, dtype: Any, field: str | None
) -> Entry:
    element = dtype if field is None else dtype[field]
    size = math.prod(shape) * dtype.itemsize

    def tally(progress: Callable[[int], None]) -> Tally:
        import numpy as np

        from whynan.checking.numpy_blocks import tally_array

        total, rest = Tally(), b""
        if element.kind not in "fciub" and element.name not in BITS:
            return total
        for piece in span.pieces(0, size):
            raw = rest + bytes(piece) if rest else piece
            whole = len(raw) // dtype.itemsize * dtype.itemsize
            array = np.frombuffer(raw[:whole], dtype)
            total.merge(tally_array(np.ascontiguousarray(array if field is None else array[field])))
            rest = bytes(raw[whole:])
            progress(len(piece))
        return total

    def index(position: int) -> tuple[int, ...]:
        import numpy as np

        return tuple(int(i) for i in np.unravel_index(position, shape, order="F"))

    return Entry(
        name=name, shape=shape, dtype=element.name, size=size, tally=tally,
        index=index if fortran else None,
    )  # fmt: skip
