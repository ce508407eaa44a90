"""What a program holds in its memory, put back after some of its statements were executed once more."""

from __future__ import annotations

import builtins
import io
import queue
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from whynan.seam.devices import budget
from whynan.seam.private import has_storage, version_of
from whynan.seam.randomness import Randomness, Saved, same_states

MAX_BYTES = 1 << 30  # of tensors that are copied
MAX_OBJECTS = 20_000
MAX_ITEMS = 500  # of a collection, that are looked into
MAX_LENGTH = 1_000_000  # of a collection that is copied
_Container = (list, dict, set, deque)
_PLAIN = (str, bytes, int, float, complex, set, torch.Size, torch.dtype, torch.device)
_PASSED_OVER = (ModuleType, type, FunctionType, MethodType, str, bytes, int, float, complex)


class Kept:
    """Tensors, gradients, collections, attributes and random states as they are now."""

    def __init__(
        self, roots: Iterable[Any], randomness: Randomness,
        around: Iterable[Any] = (), *, with_parameters: bool = True,
    ) -> None:  # fmt: skip
        """From `roots` on everything; from those `around` only collections and attributes."""
        self.generators: list[GeneratorType[Any, Any, Any]] = []  # cannot be put back
        self.consumed: list[Any] = []  # iterators, files, queues: what is taken from them is gone
        self.is_complete = True
        self.changed = False  # something was found changed when it was put back
        self._randomness = randomness
        self._states = randomness.save()
        self._begun: Saved | None = None
        self._containers: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, Any]] = []  # NumPy's
        self._free_bytes = MAX_BYTES
        self._tensors: dict[int, torch.Tensor] = {}
        for found in reachable(roots):
            if with_parameters or not isinstance(found, nn.Parameter):
                self._note(found)
        self._own = len(self._containers)  # not from those around
        known = {id(container) for container, _ in self._containers}
        for found in reachable(around):
            once = isinstance(found, GeneratorType) or is_consumed(found)
            if once or (isinstance(found, _Container) and id(found) not in known):
                self._note(found)
        self._gradients = [(t, t.grad) for t in self._tensors.values() if t.is_leaf]
        self._copies = self._copied()

    def _note(self, found: Any) -> None:
        if isinstance(found, torch.Tensor):
            self._tensors[id(found)] = found
        elif isinstance(found, GeneratorType):
            self.generators.append(found)
        elif is_consumed(found):
            self.consumed.append(found)
        elif _is_array(found):
            self._note_array(found)
        elif isinstance(found, _Container):
            if len(found) <= MAX_LENGTH:
                self._containers.append((found, found.copy()))
            else:
                self.is_complete = False

    def _note_array(self, array: Any) -> None:
        self._free_bytes -= array.nbytes
        if self._free_bytes < 0:
            self.is_complete = False
        elif array.flags.writeable:
            self._arrays.append((array, array.copy()))

    def _copied(self) -> list[tuple[torch.Tensor, int, torch.Tensor]]:
        plain = [t for t in self._tensors.values() if _can_be_copied(t)]
        if sum(t.numel() * t.element_size() for t in plain) > self._free_bytes:
            self.is_complete = False
            return []
        room = {device: budget(device, MAX_BYTES) for device in {t.device for t in plain}}
        return [(t, version_of(t), _copy(t, room)) for t in plain]

    def without_gradients(self) -> None:
        """As they are before a backward pass; the ones there are stay as they are."""
        for tensor, gradient in self._gradients:
            if gradient is not None:
                tensor.grad = None

    def begin(self, start: Callable[[], None]) -> None:
        """From where `start` puts random states and whatever else."""
        start()
        self._begun = self._randomness.save()

    def has_drawn(self) -> bool:
        """Whether random numbers were drawn since then."""
        now = self._randomness.save()
        return self._begun is None or not same_states(now, self._begun)

    def is_as_it_was(self) -> bool:
        """Whether all that was reached from the roots has the same values still, though perhaps in other
        objects."""
        return all(_alike(now, then) for now, then in self._containers[: self._own]) and all(
            same_values(tensor.detach(), copy) for tensor, _, copy in self._copies
        )

    def counted(self) -> list[tuple[dict[Any, Any], Any, int]]:
        """Counters that have gone on, and by how much."""
        return [
            (now, key, now[key] - before)
            for now, then in self._containers[: self._own]
            if isinstance(then, dict)
            for key, before in then.items()
            if type(before) is int and type(now.get(key)) is int and now[key] != before
        ]

    def put_back(self) -> None:
        for tensor, gradient in self._gradients:
            if tensor.grad is not gradient:
                tensor.grad = gradient
        for tensor, version, copy in self._copies:
            # batch_norm's statistics change without a new version; `.data` keeps the version
            touched = version_of(tensor) != version or not tensor.requires_grad
            if touched and not same_values(tensor.detach(), copy.to(tensor.device)):
                self.changed = True
                tensor.data.copy_(copy)
        for array, copy in self._arrays:
            if array.dtype.hasobject or array.tobytes() != copy.tobytes():
                array[...] = copy
        for container, copy in self._containers:
            self.changed |= _restore(container, copy)
        self._randomness.restore(self._states)

    def let_go(self) -> None:
        self._containers, self._tensors, self._gradients, self._copies = [], {}, [], []
        self.generators = []


def _can_be_copied(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, nn.Parameter, nn.Buffer)
    if not plain or tensor.layout is not torch.strided or tensor.is_meta or not has_storage(tensor):
        return False
    return not tensor.is_inference()


def _copy(tensor: torch.Tensor, room: dict[torch.device, int]) -> torch.Tensor:
    """Where it is, as long as there is room; else with the host."""
    room[tensor.device] -= tensor.numel() * tensor.element_size()
    copied = tensor.detach()
    return copied.clone() if room[tensor.device] >= 0 else copied.to("cpu", copy=True)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the last bit, but that a NaN is a NaN."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if torch.equal(one, other):
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return same_values(one.detach(), other.detach())
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            k in other and _alike(v, other[k]) for k, v in one.items()
        )
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return isinstance(one, _PLAIN) and bool(one == other or one != one)


def _restore(container: Any, copy: Any) -> bool:
    if isinstance(container, dict):
        if len(container) == len(copy) and all(
            container.get(k, copy) is v for k, v in copy.items()
        ):
            return False
        for key in [k for k in container if k not in copy]:
            del container[key]
        container.update(copy)
    elif isinstance(container, set):
        if container == copy:
            return False
        container.clear()
        container.update(copy)
    else:
        if len(container) == len(copy) and all(map(_is, container, copy)):
            return False
        container.clear()
        container.extend(copy)
    return True


def is_consumed(found: Any) -> bool:
    """Whether taking something from it changes it in a way that cannot be put back."""
    return isinstance(found, (io.IOBase, queue.Queue, queue.SimpleQueue)) or (
        hasattr(type(found), "__next__") and not isinstance(found, GeneratorType)
    )


def _is_array(found: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(found, numpy.ndarray)


def _is(one: Any, other: Any) -> bool:
    return one is other


def reachable(roots: Iterable[Any]) -> Iterator[Any]:
    """Tensors, collections and the attributes of the program's own objects, from these on."""
    waiting, seen = deque(roots), set[int]()
    while waiting and len(seen) < MAX_OBJECTS:
        found = waiting.popleft()
        if id(found) in seen or found is None or isinstance(found, _PASSED_OVER):
            continue
        if found is vars(builtins):
            continue
        seen.add(id(found))
        if (
            isinstance(found, (torch.Tensor, GeneratorType))
            or _is_array(found)
            or is_consumed(found)
        ):
            yield found
            continue
        if isinstance(found, _Container):
            yield found
        waiting.extend(_inside(found))


def _inside(found: Any) -> Iterator[Any]:
    if isinstance(found, dict):
        yield from _first(found.values())
    elif isinstance(found, (list, tuple, set, deque)):
        yield from _first(found)
    elif _has_attributes(found):
        yield vars(found)


def _first(items: Iterable[Any]) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number >= MAX_ITEMS:
            return
        yield item


def _has_attributes(found: Any) -> bool:
    """An object of the program's, a module or an optimizer; not what torch or Python keep for themselves."""
    if isinstance(found, (nn.Module, torch.optim.Optimizer)):
        return True
    if type(getattr(found, "__dict__", None)) is not dict:
        return False
    module = type(found).__module__.split(".")[0]
    return module not in ("torch", "whynan", "builtins") and module not in sys.stdlib_module_names
