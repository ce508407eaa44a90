"""Who wrote which bytes: tensor identity by storage, across views and in-place writes."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import deque
from typing import Any, NamedTuple

import torch

from whynan.seam.private import address_of
from whynan.seam.versions import watch_storage

Index = tuple[int, ...]


def is_torchs(storage: torch.UntypedStorage) -> bool:
    """Whether its memory lives as long as itself. A NumPy array's, or a shared block's, may be gone
    while there is still a storage that points there."""
    return storage.resizable()


MAX_COPY = 64 << 20  # bytes; a whole dataset is not copied


class Entry:
    """One storage and its writers. Its bytes are held, or it is only watched: a handle of torch's
    own would keep its header, which keeps the allocator from joining the memory around it."""

    __slots__ = (
        "batch", "cdata", "copy", "entered", "from_grad", "held", "leaf", "lost", "model_input", "nbytes",
        "norm", "overflowed", "partial", "shared", "tainted", "unseen", "weak", "writers",
    )  # fmt: skip

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.cdata: int = address_of(storage)
        self.held: torch.UntypedStorage | None = None
        self.weak: weakref.ref[torch.UntypedStorage] | None = None
        self.copy: weakref.ref[torch.UntypedStorage] | None = None  # of memory not torch's own
        self.nbytes: int = storage.nbytes()
        self.tainted = False  # some element is, or may be, non-finite
        self.norm: float | None = None  # of all of it, where the last write told it
        self.partial = False  # not every byte was looked at: look at each slice that is read
        self.unseen = False  # to be looked at when a result of it is bad
        self.overflowed = False  # holds an infinity that arithmetic made
        self.from_grad = False  # is a leaf's gradient, or was computed from one outside autograd
        self.leaf = False
        self.shared = False  # with a collective, whose own thread may be the last to let go of it
        self.lost = False  # what made it bad was recorded, and forgotten for want of room
        self.model_input = False  # was handed to an outermost module
        self.batch: Ref | None = None  # the part of it that a model was given
        self.entered: Any = None  # call site at which it came in from outside
        self.writers: list[tuple[int, Ref]] = []

    def watch(self, storage: torch.UntypedStorage) -> None:
        """Know it, and do not keep it."""
        if self.weak is None and not self.shared:
            self.weak = watch_storage(storage)
        self.held = None

    def share(self) -> None:
        """Once it is not held, it counts as gone: a thread without Python's lock may be about to free it,
        and asking a weak reference would bring back what is freed a moment later."""
        self.shared = True
        self.weak = None

    def storage(self) -> torch.UntypedStorage | None:
        """The bytes, if anybody still keeps them."""
        if self.held is not None:
            return self.held
        found = self.weak() if self.weak is not None else None
        return self.copy() if found is None and self.copy is not None else found

    def keep(self) -> torch.UntypedStorage | None:
        """The bytes for as long as the caller wants: a copy, where their memory may be gone before,
        unless they are too many."""
        storage = self.storage()
        if storage is None or is_torchs(storage):
            return storage
        if storage.nbytes() > MAX_COPY:
            return None
        copied = storage.clone()  # type: ignore[no-untyped-call]  # torch
        self.copy = watch_storage(copied)
        return copied  # type: ignore[no-any-return]  # torch

    def is_gone(self) -> bool:
        """Whether the storage is gone, and its address perhaps another one's."""
        return self.held is None and (self.weak is None or self.weak() is None)

    def expired(self) -> bool:
        """Whether its bytes are lost, too."""
        return self.is_gone() and (self.copy is None or self.copy() is None)


class Ref(NamedTuple):
    """One tensor as an operation saw it: a window onto a storage."""

    entry: Entry
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor | None:
        """The tensor itself, if its bytes are still there."""
        storage = self.entry.storage()
        # A storage that was made smaller: `set_` would make it large again.
        if storage is None or (0 not in self.shape and _extent(self)[1] > storage.nbytes()):
            return None
        window = torch.empty(0, dtype=self.dtype, device=storage.device)
        return window.set_(storage, self.offset, self.shape, self.stride)

    def position(self, index: Index) -> int:
        """Where in the storage, in bytes, the element stands."""
        element = self.offset + sum(i * s for i, s in zip(index, self.stride, strict=True))
        return element * self.dtype.itemsize

    def index_at(self, position: int) -> Index | None:
        """Which element of this tensor stands at that byte; None when it has none there."""
        rest = position // self.dtype.itemsize - self.offset
        if rest < 0 or 0 in self.shape:
            return None
        index = [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda a: -self.stride[a]):
            if self.shape[axis] > 1 and self.stride[axis] > 0:
                index[axis] = min(rest // self.stride[axis], self.shape[axis] - 1)
                rest -= index[axis] * self.stride[axis]
        return tuple(index) if rest == 0 else None


def overwritten(ref: Ref, since: int, index: Index | None) -> bool:
    """Whether a later operation wrote to this tensor, or to that element of it."""
    writers = ref.entry.writers
    if not writers or writers[-1][0] < since:  # nearly always
        return False
    later = [written for _, written in writers[bisect_left(writers, (since,)) :]]
    if index is not None:
        position = ref.position(index)
        return any(written.index_at(position) is not None for written in later)
    first, last = _extent(ref)
    return any(low < last and first < high for low, high in map(_extent, later))


def _extent(ref: Ref) -> tuple[int, int]:
    size = ref.dtype.itemsize
    reach = sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True) if n > 0)
    return ref.offset * size, (ref.offset + reach + 1) * size


class Holder:
    """Values that one thread keeps alive for the explanation, within a byte budget."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def hold(self, entry: Entry, storage: torch.UntypedStorage) -> None:
        """Keep these bytes until the budget is needed for newer ones."""
        if entry.held is not None:
            return
        if entry.nbytes > self.max_bytes // 8:
            entry.watch(storage)
            return
        entry.held = storage
        self._entries.append(entry)
        self._bytes += entry.nbytes
        while self._bytes > self.max_bytes:
            oldest = self._entries.popleft()
            self._bytes -= oldest.nbytes
            if oldest.held is not None:
                oldest.watch(oldest.held)

    def let_go(self) -> list[Entry]:
        """Hold nothing any longer. Returns what is gone by that."""
        held = [entry for entry in self._entries if entry.held is not None]
        for entry in held:
            if entry.held is not None:
                entry.watch(entry.held)
        self._entries.clear()
        self._bytes = 0
        return [entry for entry in held if entry.expired()]
