"""Loaders that fetch ahead: the batch of a step is the one handed out, not the one just fetched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

# accelerate (and with it transformers) asks its loader for the next batch before it hands one out,
# and so does Lightning when it does not know the number of batches.
GENERATORS = (
    ("accelerate.data_loader", "DataLoaderShard"),
    ("accelerate.data_loader", "DataLoaderDispatcher"),
)
FETCHERS = (
    ("lightning.pytorch.loops.fetchers", "_PrefetchDataFetcher"),
    ("pytorch_lightning.loops.fetchers", "_PrefetchDataFetcher"),
)


def imported(names: tuple[tuple[str, str], ...]) -> Iterator[type]:
    """Those of the classes whose modules the program has imported."""
    for module, name in names:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind


class Handed:
    """Stands for a generator, so that its batches can be handed out again."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __iter__(self) -> Handed:
        return self

    def __next__(self) -> Any:
        return next(self.generator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.generator, name)


def fetches_ahead(iterator: Any) -> bool:
    """Whether the loader beneath is ahead of what this one hands out."""
    return isinstance(iterator, Handed) or getattr(iterator, "length", 0) is None
