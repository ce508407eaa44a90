"""One tensor that an operation was given, the part of it that was read, and the values there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from whynan.record.records import Record
from whynan.record.storages import Index, Ref, overwritten

Selection = tuple[int | slice, ...]
ALL = slice(None)


class Read(NamedTuple):
    """One tensor argument and the part of it that the witness depends on."""

    role: str
    ref: Ref
    selection: Selection
    position: int | str  # which argument
    item: int | None  # which element of a list argument
    known: bool = True  # False: it may depend on any part of this, or on none

    @property
    def element(self) -> Index | None:
        """The one element it depends on; None when there are several."""
        return (
            tuple(i for i in self.selection if isinstance(i, int))
            if all(isinstance(i, int) for i in self.selection)
            else None
        )

    def within(self, inner: Sequence[int]) -> Index:
        """An element of the part, as one of the whole tensor."""
        rest = iter(inner)
        chosen = self.selection
        return tuple(i if isinstance(i, int) else (i.start or 0) + next(rest) for i in chosen)

    @property
    def fits(self) -> bool:
        """Whether the argument has such a part."""
        return len(self.selection) == len(self.ref.shape) and all(
            isinstance(i, slice) or i < size
            for i, size in zip(self.selection, self.ref.shape, strict=True)
        )


class Given(NamedTuple):
    """One tensor argument, before anything is known of what depends on it."""

    role: str
    ref: Ref
    position: int | str
    item: int | None

    def part(self, selection: Selection, *, known: bool = True) -> Read:
        return Read(self.role, self.ref, selection, self.position, self.item, known)

    def whole(self) -> Read:
        return self.part((ALL,) * len(self.ref.shape))

    def some(self) -> Read:
        """Which part of it is not known, unless it has but one."""
        return self.whole()._replace(known=all(size == 1 for size in self.ref.shape))

    def at(self, index: Index) -> Read:
        """The place that this one of the result is computed from, where shapes are broadcast."""
        shape = self.ref.shape
        if len(shape) > len(index):
            return self.some()
        tail = index[len(index) - len(shape) :]
        if any(size != 1 and i >= size for i, size in zip(tail, shape, strict=True)):
            return self.some()
        return self.part(tuple(0 if n == 1 else i for i, n in zip(tail, shape, strict=True)))


def given(record: Record) -> list[Given]:
    """The tensors that an operation reads, in the order of its arguments."""
    found: list[Given] = []
    arguments: list[tuple[int | str, str, Any]] = [
        (i, record.info.arg_names[i], arg) for i, arg in enumerate(record.args)
    ]
    arguments += [(name, name, arg) for name, arg in record.kwargs.items() if name != "out"]
    if record.info.overwrites or record.info.reads == "nothing":
        arguments = arguments[1:]  # of it, the shape only
    for position, name, arg in arguments:
        if isinstance(arg, Ref):
            found.append(Given(name, arg, position, None))
        elif isinstance(arg, list):
            found += [
                Given(f"{name}[{i}]", item, position, i)
                for i, item in enumerate(arg)
                if isinstance(item, Ref)
            ]
    return found


def value_before(record: Record, read: Read) -> torch.Tensor | None:
    """The argument's values when the operation ran; None when they were overwritten or freed."""
    if record.before is not None and isinstance(read.position, int):
        saved: Any = record.before.get(read.position)
        if isinstance(saved, list):
            saved = saved[read.item or 0]
        if saved is not None:
            return saved  # type: ignore[no-any-return]  # Any from the dict
    return None if overwritten(read.ref, record.index, read.element) else read.ref.tensor()


def value_after(record: Record, k: int) -> torch.Tensor | None:
    """The output's values; None when they were overwritten or freed since."""
    ref = record.outs[k]
    return None if overwritten(ref, record.index + 1, None) else ref.tensor()
