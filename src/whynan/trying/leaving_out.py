"""In the process of a trial: one batch of a DataLoader comes without some of its samples."""

from __future__ import annotations

from typing import Any

import torch

from whynan.seam.private import LoaderIterator


def leave_out(fetch: int, size: int, rows: list[int]) -> None:
    """The batch that is fetched as number `fetch` lacks these rows; all others are whole."""
    original = LoaderIterator.__next__
    count = 0
    keep = [i for i in range(size) if i not in set(rows)]

    def fetch_next(iterator: Any) -> Any:
        nonlocal count
        item = original(iterator)
        count += 1
        return part_of(item, size, keep) if count == fetch else item

    LoaderIterator.__next__ = fetch_next


def part_of(item: Any, size: int, keep: list[int]) -> Any:
    """Whatever has one entry for each sample is cut; the rest stays."""
    if isinstance(item, torch.Tensor):
        return item[keep] if item.dim() > 0 and len(item) == size else item
    if isinstance(item, dict):
        return {key: part_of(value, size, keep) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        if len(item) == size and not any(_is_whole(part, size) for part in item):
            return type(item)([item[i] for i in keep])
        parts = [part_of(part, size, keep) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return item


def _is_whole(part: Any, size: int) -> bool:
    """A batch of its own: then the list holds columns, not samples."""
    return isinstance(part, torch.Tensor) and part.dim() > 0 and len(part) == size
