"""Arrays in a checkpoint: windows on a storage, and NumPy arrays inside the pickle itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from whynan.checking.pickles import Call, Global
from whynan.checking.spans import BITS, Entry, Span, Unreadable, tally_span
from whynan.checking.tally import Tally

LARGEST_GAPS = 1 << 28  # bytes between the elements of a view that is neither dense nor a repeat


def window_entry(
    name: str, span: Span, dtype: str, offset: int, shape: tuple[int, ...],
    strides: tuple[int, ...], big: bool,
) -> Entry:  # fmt: skip
    """A window on a storage. Repeated elements (stride 0) are read once."""
    import numpy as np

    item = np.dtype(BITS[dtype]).itemsize
    real = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1 and s != 0]
    count = math.prod(n for n, _ in real) if 0 not in shape else 0
    extent = 1 + sum((n - 1) * s for n, s in real) if count else 0
    if (offset + extent) * item > span.size:
        raise Unreadable(
            f"corrupt: {name} needs {(offset + extent) * item:,} bytes of a storage of {span.size:,}"
        )
    start, stop = offset * item, (offset + extent) * item
    if count == extent:

        def dense(progress: Callable[[int], None]) -> Tally:
            return tally_span(span, start, stop, dtype, progress, big_endian=big)

        def index(position: int) -> tuple[int, ...]:
            return tuple(position // s % n if s and n > 1 else 0 for n, s in zip(shape, strides, strict=True))  # fmt: skip

        return Entry(name=name, shape=shape, dtype=dtype, size=stop - start, tally=dense, index=index)  # fmt: skip
    if stop - start > LARGEST_GAPS or count > extent:
        raise Unreadable(f"{name} is a view with strides {strides}, which cannot be read in pieces")

    def gapped(progress: Callable[[int], None]) -> Tally:
        from whynan.checking.numpy_blocks import tally_array

        raw = b"".join(bytes(p) for p in span.pieces(start, stop))
        progress(len(raw))
        flat = np.frombuffer(raw, np.dtype(BITS[dtype]).newbyteorder(">" if big else "<"))
        view = np.lib.stride_tricks.as_strided(
            flat, [n for n, _ in real], [s * item for _, s in real], writeable=False
        )
        native = np.ascontiguousarray(view).astype(BITS[dtype])
        return tally_array(native.view(bool) if dtype == "bool" else native, dtype)

    sizes = [n if n > 1 and s else 1 for n, s in zip(shape, strides, strict=True)]

    def gap_index(position: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(position, sizes))

    return Entry(name=name, shape=shape, dtype=dtype, size=stop - start, tally=gapped, index=gap_index)  # fmt: skip


def _raw_bytes(x: Any) -> Any:
    """Bytes as they are, or in the disguise that protocol 2 gives them."""
    if isinstance(x, Call) and isinstance(x.function, Global) and x.function.name == "encode":
        x = x.args[0] if isinstance(x.args, tuple) and x.args else None
    try:
        return x.encode("latin1") if isinstance(x, str) else x
    except UnicodeEncodeError:
        return None


def array_entry(name: str, shape: Any, described: Any, fortran: bool, raw: Any) -> Entry | None:
    """A NumPy array inside a pickle."""
    import numpy as np

    raw = _raw_bytes(raw)
    if not isinstance(described, Call) or not isinstance(shape, tuple):
        return None
    code = described.args[0] if isinstance(described.args, tuple) and described.args else None
    details = described.state
    order = details[1] if isinstance(details, tuple) and len(details) > 1 else "<"
    if not isinstance(code, str) or code[:1] not in "fciub" or not isinstance(raw, (bytes, bytearray)):  # fmt: skip
        return None
    try:
        dtype = np.dtype(code).newbyteorder(">" if order == ">" else "=")
        array = np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, OverflowError, SyntaxError) as error:
        raise Unreadable(f"corrupt: array {name} ({error})") from None

    def tally(progress: Callable[[int], None]) -> Tally:
        from whynan.checking.numpy_blocks import tally_array

        progress(array.nbytes)
        return tally_array(array)

    return Entry(name=name, shape=array.shape, dtype=dtype.name, size=array.nbytes, tally=tally)
