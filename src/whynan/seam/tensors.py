"""The tensors in a nest of containers, and what is bad in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from whynan.seam.private import has_storage
from whynan.seam.reading import readable
from whynan.seam.stats import has_nonfinite


def bad_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """What is in a dense floating tensor, if some of that is non-finite."""
    values = readable(tensor)
    if values is None or values.layout is not torch.strided or not values.is_floating_point():
        return None
    return values if has_nonfinite(values) else None


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
    elif hasattr(value, "__dataclass_fields__"):
        items = [getattr(value, name, None) for name in value.__dataclass_fields__]
    return [tensor for item in items for tensor in tensors_in(item, depth - 1)]
