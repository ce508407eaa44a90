"""The tensors in a nest of containers, and what is bad in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from whynan.seam.private import has_storage
from whynan.seam.reading import readable
from whynan.seam.stats import fetched, has_nonfinite, worst


def bad_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """What is in a dense floating tensor, if some of that is non-finite."""
    values = _dense_values(tensor)
    return values if values is not None and has_nonfinite(values) else None


def bad_among(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The same for many: one wait for all that are on a device."""
    found = [values for t in tensors if (values := _dense_values(t)) is not None]
    yield from (values for values in found if values.is_cpu and has_nonfinite(values))
    there = [(v, question) for v in found if not v.is_cpu and (question := worst(v)) is not None]
    answers = fetched([question for _, question in there]) if there else []
    yield from (v for (v, _), a in zip(there, answers, strict=True) if a - a != 0)


def any_bad(tensors: Iterable[torch.Tensor]) -> bool:
    return next(bad_among(tensors), None) is not None


def _dense_values(tensor: torch.Tensor) -> torch.Tensor | None:
    values = readable(tensor)
    if values is None or values.layout is not torch.strided or not values.is_floating_point():
        return None
    return values


def saved_tensors(obj: Any) -> list[torch.Tensor]:
    """What `torch.save` writes of a model or of containers, without running the model's hooks."""
    if isinstance(obj, torch.nn.Module):
        return [*obj.parameters(), *obj.buffers()]
    return tensors_in(obj)


def tensors_in(value: Any, depth: int = 4) -> list[torch.Tensor]:
    """The tensors in a nest of containers."""
    if isinstance(value, torch.Tensor):
        return [value] if has_storage(value) else []
    if depth == 0:
        return []
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple, set)):
        items = value
    elif hasattr(
        type(value), "__dataclass_fields__"
    ):  # asked itself, it may run the program's code
        items = [getattr(value, name, None) for name in value.__dataclass_fields__]
    return [tensor for item in items for tensor in tensors_in(item, depth - 1)]
