"""PyTorch checkpoints, both formats: every tensor in them, found without executing anything."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.checking.pickles import Call, Global, Persistent, describe
from whynan.checking.spans import BITS, Entry, FileSpan, Span, Unreadable, open_zip, zip_span
from whynan.checking.tally import Tally
from whynan.checking.windows import array_entry, window_entry

LARGEST_PICKLE = 1 << 26
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}  # fmt: skip
# Containers of a module that its own names do not mention.
UNNAMED = ("_modules", "_parameters", "_buffers")

Storages = Callable[[str], Span]


def torch_entries(path: Path, dangers: list[str] | None = None) -> list[Entry]:
    """Every tensor in a file made by `torch.save`; `dangers` gets what loading it would run."""
    dangers = [] if dangers is None else dangers
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic[:2] == b"PK":
        return _zip_entries(path, dangers)
    if magic[:1] == b"\x80":
        return _legacy_entries(path, dangers)
    raise Unreadable("not a PyTorch file: neither an archive nor a pickle")


def _zip_entries(path: Path, dangers: list[str]) -> list[Entry]:
    with open_zip(path) as archive:
        names = set(archive.namelist())
        pickles = [n for n in names if n == "data.pkl" or n.endswith("/data.pkl")]
        if not pickles:
            raise Unreadable("not a PyTorch file: an archive without data.pkl")
        root = min(pickles, key=len)[: -len("data.pkl")]
        if archive.getinfo(root + "data.pkl").file_size > LARGEST_PICKLE:
            raise Unreadable(f"its pickle is larger than {LARGEST_PICKLE >> 20} MB")
        span = zip_span(archive, path, root + "data.pkl")
        text = b"".join(bytes(p) for p in span.pieces(0, span.size))
        order = root + "byteorder"
        big = order in names and archive.read(order)[:3] == b"big"
        spans: dict[str, Span] = {}

        def storage(key: str) -> Span:
            name = f"{root}data/{key}"
            if name not in names:
                raise Unreadable(f"storage {key} is missing from the archive")
            if name not in spans:
                spans[name] = zip_span(archive, path, name)
            return spans[name]

        return list(_Finder(storage, big).tensors(describe(io.BytesIO(text), dangers), ""))


def _legacy_entries(path: Path, dangers: list[str]) -> list[Entry]:
    """Before torch 1.6: five pickles, then the storages one after another."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = io.BytesIO(file.read(LARGEST_PICKLE))
    first = describe(head, dangers)
    if first != 0x1950A86A20F9469CFC6C:
        # A pickle that torch did not write; it may still hold NumPy arrays.
        return list(_Finder(_no_storage, False).tensors(first, ""))
    describe(head, dangers)
    system = describe(head, dangers)
    big = isinstance(system, dict) and system.get("little_endian") is False
    described, keys = describe(head, dangers), describe(head, dangers)
    if not isinstance(keys, list):
        raise Unreadable("corrupt: no list of storages")
    finder = _Finder(_no_storage, big)
    item_sizes = dict(_storage_sizes(described))
    spans: dict[str, Span] = {}
    at = head.tell()
    with open(path, "rb") as file:
        for key in keys:
            file.seek(at)
            count = int.from_bytes(file.read(8), "big" if big else "little")
            length = count * item_sizes.get(str(key), 1)
            if at + 8 + length > size:
                raise Unreadable(f"truncated: {at + 8 + length - size:,} bytes are missing at its end")  # fmt: skip
            spans[str(key)] = FileSpan(path, at + 8, length)
            at += 8 + length

    def storage(key: str) -> Span:
        if key not in spans:
            raise Unreadable(f"storage {key} is missing from the file")
        return spans[key]

    finder.storage = storage
    return list(finder.tensors(described, ""))


def _no_storage(key: str) -> Span:
    raise Unreadable(f"storage {key} is missing from the file")


def _storage_sizes(described: Any) -> Iterator[tuple[str, int]]:
    import numpy as np

    for found in walk(described):
        if isinstance(found, Persistent):
            dtype, key = _storage_of(found)
            yield key, np.dtype(BITS[dtype]).itemsize


def _storage_of(reference: Any) -> tuple[str, str]:
    """Type and key of a storage."""
    if not isinstance(reference, Persistent):
        raise Unreadable("corrupt: a tensor without storage")
    parts = reference.id
    if not isinstance(parts, tuple) or len(parts) < 4 or not isinstance(parts[1], Global):
        raise Unreadable("corrupt: a storage without a type")
    if parts[1].name not in STORAGES:
        raise Unreadable(f"storage type {parts[1].name} is not known")
    return STORAGES[parts[1].name], str(parts[2])


def children(x: Any) -> list[tuple[Any, Any]]:
    """Parts of a described object with their names; None where a part has none."""
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, (list, tuple)):
        return list(enumerate(x))
    if isinstance(x, Call):
        state = [(None, x.state)] if x.state is not None else []
        return [(None, x.args), *x.items.items(), *enumerate(x.members), *state]
    return [(None, x.id)] if isinstance(x, Persistent) else []


def walk(x: Any) -> Iterator[Any]:
    """Everything in a described object, each once, without recursion."""
    seen, waiting = set(), [x]
    while waiting:
        found = waiting.pop()
        if isinstance(found, (dict, list, tuple, Call, Persistent)):
            if id(found) in seen:
                continue
            seen.add(id(found))
            waiting += [part for _, part in children(found)]
        yield found


@dataclass(slots=True)
class _Finder:
    storage: Storages
    big_endian: bool

    def tensors(self, described: Any, name: str) -> Iterator[Entry]:
        """In the order of the file; shared objects once, under their first name."""
        seen: set[int] = set()
        waiting: list[tuple[str, Any]] = [(name, described)]
        while waiting:
            path, x = waiting.pop()
            if not isinstance(x, (dict, list, tuple, Call)) or id(x) in seen:
                continue
            seen.add(id(x))
            entry = self.entry(path, x) if isinstance(x, Call) else None
            if entry is not None:
                yield entry
                continue
            if not isinstance(x, Call):  # in an object's state NaN may well be a setting
                yield from (_nan_entry(_joined(path, k)) for k, v in children(x) if _is_nan(v))
            parts = _unwrapped(x)
            waiting += [(_joined(path, key), part) for key, part in reversed(parts)]

    def entry(self, name: str, call: Call) -> Entry | None:
        function = call.function.name if isinstance(call.function, Global) else ""
        if function in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return self.tensor(name, call.args)
        if function == "_reconstruct" and isinstance(call.state, tuple) and len(call.state) == 5:
            _, shape, dtype, fortran, raw = call.state
            return array_entry(name, shape, dtype, bool(fortran), raw)
        if function == "_frombuffer" and isinstance(call.args, tuple) and len(call.args) == 4:
            raw, dtype, shape, order = call.args
            return array_entry(name, shape, dtype, order == "F", raw)
        return None

    def tensor(self, name: str, args: Any) -> Entry:
        if not isinstance(args, tuple) or len(args) < 4:
            raise Unreadable(f"corrupt: {name or 'a tensor'} is not described in full")
        dtype, key = _storage_of(args[0])
        if len(args) > 6 and isinstance(args[6], Global):  # version 3 names the type itself
            dtype = args[6].name
        offset, shape, strides = args[1:4]
        if dtype not in BITS:
            raise Unreadable(f"{name} has type {dtype}, which is not known")
        whole = (shape, strides, (offset,))
        if not all(isinstance(t, tuple) and all(type(n) is int and 0 <= n < 1 << 62 for n in t) for t in whole) or len(shape) != len(strides):  # fmt: skip
            raise Unreadable(f"corrupt: {name} has shape {shape!r:.60} and strides {strides!r:.60}")
        return window_entry(name, self.storage(key), dtype, offset, shape, strides, self.big_endian)


def _is_nan(x: Any) -> bool:
    """A loss or a learning rate that went bad; an infinity is often the start of a minimum."""
    return isinstance(x, float) and x != x


def _nan_entry(name: str) -> Entry:
    return Entry(
        name=name, shape=(), dtype="float64", size=0,
        tally=lambda progress: Tally(seen=1, nan=1, first_bad=0, first_is_nan=True),
    )  # fmt: skip


def _unwrapped(x: Any) -> list[tuple[Any, Any]]:
    """The parts of an object, without the wrappings that a reader does not think of."""
    if isinstance(x, Call):
        function = x.function.name if isinstance(x.function, Global) else ""
        args = x.args if isinstance(x.args, tuple) else (x.args,)
        if function == "_rebuild_from_type_v2" and len(args) >= 3:
            return [(None, Call(args[0], args[2]))]
        return [*((None, a) for a in args), *children(x)[1:]]
    return [(None if key in UNNAMED else key, part) for key, part in children(x)]


def _joined(path: str, key: Any) -> str:
    if key is None:
        return path
    return f"{path}.{key}" if path else str(key)
