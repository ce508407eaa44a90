"""`.npy` and `.npz`, without ever loading a pickled object."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.checking.spans import (
    Entry,
    FileSpan,
    Span,
    Unreadable,
    ZipSpan,
    open_zip,
    zip_span,
)
from whynan.checking.tally import Tally

HEADER_BYTES = 1 << 16  # NumPy itself refuses more than 10,000
OBJECTS = "holds pickled Python objects, which are not opened"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a header says of the values that follow it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: Any
    start: int
    bfloat16: bool  # which NumPy stores without its name


def npy_entries(path: Path) -> list[Entry]:
    """The one array of a `.npy` file."""
    with open(path, "rb") as file:
        layout = _header(file)
    span = FileSpan(path, layout.start, path.stat().st_size - layout.start)
    entries = _entries("", span, layout)
    if entries[0].unread is not None:
        raise Unreadable(entries[0].unread)
    return entries


def npz_entries(path: Path) -> list[Entry]:
    """Every array of a `.npz` archive, and what else is in it."""
    entries: list[Entry] = []
    with open_zip(path) as archive:
        for name in archive.namelist():
            if name.endswith("/"):
                continue
            if name.endswith(".npy"):
                entries += _member(archive, path, name)
            else:  # to leave it out would be a false all-clear
                entries.append(_unread(name, "no array: unpack it to check it"))
    return entries


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> list[Entry]:
    span = zip_span(archive, path, name)
    with archive.open(name) as file:
        layout = _header(file)
    start = layout.start
    data: Span
    if isinstance(span, FileSpan):
        data = FileSpan(path, span.offset + start, span.size - start)
    else:
        data = ZipSpan(path, name, span.size - start, skip=start)
    return _entries(name.removesuffix(".npy"), data, layout)


def _header(file: Any) -> Layout:
    import tokenize

    from numpy.lib import format as npy

    head = io.BytesIO(file.read(HEADER_BYTES))
    try:
        version = npy.read_magic(head)
        # 3.0 differs from 2.0 only in the encoding of field names.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(head)
    except (ValueError, TypeError, OverflowError, SyntaxError, EOFError, MemoryError, RecursionError, tokenize.TokenError) as error:  # fmt: skip
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreadable(f"corrupt: not a NumPy header ({reason:.80})") from None
    if not all(0 <= n < 1 << 62 for n in shape):
        raise Unreadable(f"corrupt: shape {shape!r:.60}")
    start = head.tell()
    # A plain void has no byte order; of ml_dtypes' types only this one has two bytes.
    bfloat16 = dtype.str[1:] == "V2" and b"'<V2'" in head.getvalue()[:start]
    return Layout(shape, fortran, dtype, start, bfloat16)


def _entries(name: str, span: Span, layout: Layout) -> list[Entry]:
    dtype = layout.dtype
    if dtype.hasobject:
        return [_unread(name, OBJECTS)]
    needed = math.prod(layout.shape) * dtype.itemsize
    if needed > span.size:
        raise Unreadable(f"truncated: {needed - span.size:,} bytes are missing at its end")
    if layout.bfloat16:
        return [_entry(name, span, layout, np_dtype("<u2"), (), "bfloat16")]
    fields = [(path, kind) for path, kind in _fields(dtype, ()) if kind.base.kind in "fciub"]
    if fields:
        return [_entry(".".join([name] * bool(name) + [*path]), span, layout, kind, path) for path, kind in fields]  # fmt: skip
    if dtype.kind == "V" and dtype.names is None:
        return [
            _unread(
                name, f"stored as raw bytes ({dtype.str[1:]}), without a type: save it as float32"
            )
        ]
    return [Entry(name=name, shape=layout.shape, dtype=dtype.name, size=0, tally=_nothing, text=True)]  # fmt: skip


def np_dtype(name: str) -> Any:
    import numpy as np

    return np.dtype(name)


def _fields(dtype: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field of a structured type with its way from outside; the type itself if it has none."""
    if dtype.base.names is None:
        yield path, dtype
        return
    for field in dtype.base.names:
        yield from _fields(dtype.base[field], (*path, field))


def _nothing(progress: Callable[[int], None]) -> Tally:
    return Tally()


def _unread(name: str, why: str) -> Entry:
    return Entry(name=name, shape=(), dtype="object", size=0, tally=_nothing, unread=why)


def _entry(
    name: str, span: Span, layout: Layout, kind: Any, path: tuple[str, ...], named: str = ""
) -> Entry:
    stored = kind if named else layout.dtype
    size = math.prod(layout.shape) * stored.itemsize

    def tally(progress: Callable[[int], None]) -> Tally:
        import numpy as np

        from whynan.checking.numpy_blocks import tally_array

        total, rest = Tally(), b""
        for piece in span.pieces(0, size):
            raw = rest + bytes(piece) if rest else piece
            whole = len(raw) // stored.itemsize * stored.itemsize
            array = np.frombuffer(raw[:whole], stored)
            for field in path:
                array = array[field]
            total.merge(tally_array(np.ascontiguousarray(array), named))
            rest = bytes(raw[whole:])
            progress(len(piece))
        return total

    def index(position: int) -> tuple[int, ...]:
        import numpy as np

        outer, inner = divmod(position, math.prod(kind.shape))
        first = np.unravel_index(outer, layout.shape, order="F")
        return tuple(int(i) for i in (*first, *np.unravel_index(inner, kind.shape)))

    return Entry(
        name=name, shape=(*layout.shape, *kind.shape), dtype=named or kind.base.name, size=size,
        tally=tally, index=index if layout.fortran else None,
    )  # fmt: skip
