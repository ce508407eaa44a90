"""What a call was given that it may add to: a cache of keys and values, a list of states.

Before the call only its size is noted, which costs no memory; cut to that size, it is what it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from whynan.watching.kept import reachable

MAX_OBJECTS = 2_000
_PLAIN = (torch.Tensor, str, bytes, int, float, complex, torch.dtype, torch.device, torch.nn.Module)


class _Tensor(NamedTuple):
    number: int
    shape: torch.Size


class Grown:
    """Collections and objects among arguments, as they are before the call."""

    def __init__(self, arguments: Iterable[Any]) -> None:
        self._then: list[tuple[Any, dict[Any, Any]]] = []
        for found in reachable(arguments):
            if isinstance(found, (list, dict)) or (
                isinstance(found, deque) and found.maxlen is None
            ):
                self._then.append((found, {k: _noted(v) for k, v in _items(found)}))
            if len(self._then) > MAX_OBJECTS:
                break

    def cut(self) -> None:
        """Make them what they were, as far as they have only grown."""
        for container, then in self._then:
            if isinstance(container, dict):
                for key in [k for k in container if k not in then]:
                    del container[key]
            else:
                while len(container) > len(then):
                    container.pop()
            for key, value in list(_items(container)):
                if key in then:
                    container[key] = _earlier(value, then[key])


def can_grow(values: Iterable[Any]) -> bool:
    """Whether there is anything but tensors and plain values: nearly never."""
    return any(not isinstance(v, _PLAIN) and v is not None for v in values)


def _items(container: Any) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _noted(value: Any) -> Any:
    return _Tensor(id(value), value.shape) if isinstance(value, torch.Tensor) else value


def _earlier(now: Any, then: Any) -> Any:
    if not isinstance(then, _Tensor):
        return then
    if not isinstance(now, torch.Tensor) or id(now) == then.number or now.dim() != len(then.shape):
        return now
    longer = [d for d in range(now.dim()) if now.shape[d] > then.shape[d]]
    if len(longer) != 1:
        return now
    return now.narrow(longer[0], 0, then.shape[longer[0]])
