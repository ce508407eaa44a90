"""What an item of a dataset is called: its file, or its text, where the dataset itself has that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

MOST_SHOWN = 60
MAX_ATTRIBUTES = 64
MAX_NESTED = 4  # a part of a part of a dataset


def name_of(dataset: Any, index: int) -> str | None:
    """One line; None where nothing of the dataset's has a text for each of its items."""
    dataset, index = _whole(dataset, index)
    size = _size(dataset)
    if size is None or not 0 <= index < size:
        return None
    return _shown(_texts(dataset, index, size))


def text_of(item: Any) -> str | None:
    """The same of an item that the program took from a list of its own."""
    return _shown(_in(item))


def _shown(texts: Iterator[str]) -> str | None:
    found = [text for text in texts if text]
    files = [text for text in found if os.sep in text or os.path.splitext(text)[1]]
    text = next(iter(files or found), None)
    if text is None:
        return None
    if files:
        return os.path.relpath(text) if os.path.isabs(text) and os.path.exists(text) else text
    short = " ".join(text.split())
    return repr(short if len(short) <= MOST_SHOWN else short[: MOST_SHOWN - 3] + "...")


def _whole(dataset: Any, index: int) -> tuple[Any, int]:
    """Of a `Subset`: what it is a part of."""
    for _ in range(MAX_NESTED):
        parts, inner = getattr(dataset, "indices", None), getattr(dataset, "dataset", None)
        if inner is None or not isinstance(parts, Sequence) or not 0 <= index < len(parts):
            break
        dataset, index = inner, int(parts[index])
    return dataset, index


def _size(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:
        return None


def _texts(dataset: Any, index: int, size: int) -> Iterator[str]:
    """What stands at that place in each of its lists that are as long as it is."""
    if type(dataset).__module__.startswith("datasets."):
        yield from _of_table(dataset, index)
        return
    held = getattr(dataset, "__dict__", {})
    for value in [dataset, *list(held.values())[:MAX_ATTRIBUTES]]:
        if isinstance(value, (list, tuple)) and len(value) == size:
            yield from _in(value[index])


def _in(item: Any) -> Iterator[str]:
    """Itself, or the first text of a pair or of named fields."""
    if isinstance(item, (str, os.PathLike)):
        yield os.fspath(item) if isinstance(item, os.PathLike) else item
    elif isinstance(item, (list, tuple)):
        yield from (part for part in item[:MAX_NESTED] if isinstance(part, str))
    elif isinstance(item, dict):
        yield from (part for part in list(item.values())[:MAX_ATTRIBUTES] if isinstance(part, str))


def _of_table(dataset: Any, index: int) -> Iterator[str]:
    """A row of a table of the `datasets` library, without the form that the program wants it in."""
    try:
        yield from _in(dataset.with_format(None)[index])
    except Exception:  # it cannot be read here
        return
