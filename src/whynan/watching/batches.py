"""The batches of the current step, so that the loop can be given them once more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from whynan.record.batches import Asked, keep_batch
from whynan.record.checks import tensors_in
from whynan.record.patches import Patches
from whynan.watching.ahead import FETCHERS, GENERATORS, Handed, fetches_ahead, imported
from whynan.watching.randomness import Randomness, Saved

MAX_BYTES = 64 << 20  # of the batches before the last one: gradient accumulation


class Batch:
    """One item as a loader gave it."""

    __slots__ = ("after", "before", "bytes", "index", "item", "iterator", "versions")

    def __init__(self, iterator: Any, item: Any, index: Any, before: Saved, after: Saved) -> None:
        self.iterator = weakref.ref(iterator)
        self.item = item
        self.index = index  # what the dataset was asked for, where that is known
        self.before = before  # random states before and after the fetch
        self.after = after
        tensors = tensors_in(item)
        self.versions = [t._version for t in tensors if not t.is_inference()]
        self.bytes = sum(t.numel() * t.element_size() for t in tensors)

    def is_untouched(self) -> bool:
        """Whether nobody wrote into it since."""
        now = [t._version for t in tensors_in(self.item) if not t.is_inference()]
        return now == self.versions


class Batches:
    """Stands between the program and its DataLoaders."""

    def __init__(self, randomness: Randomness) -> None:
        self.randomness = randomness
        self.given: list[Batch] = []  # in this step
        self.ever = False  # a loader is in use at all
        self.lost = False  # some batch of this step is no longer here
        self.active: Callable[[], bool] = lambda: True
        self.on_fetch: Callable[[], None] = lambda: None
        self.on_given: Callable[[Any], None] = lambda index: None
        self._queue: list[Batch] = []
        self._asked = Asked()
        self._patches: Patches | None = None
        self._wrapped: set[type] = set()
        self._ahead = False  # a loader that fetches ahead is at work

    def install(self, patches: Patches) -> None:
        self._patches = patches
        patches.wrap(Handed, "__next__", self._wrap_ahead)
        patches.wrap(_BaseDataLoaderIter, "__next__", self._wrap_next)
        patches.wrap(_BaseDataLoaderIter, "_next_index", self._wrap_index)

    def know_frameworks(self) -> None:
        """Before the first batch: which loaders has the program imported meanwhile?"""
        if self._patches is None:
            return
        for names, method, wrapper in (
            (GENERATORS, "__iter__", self._wrap_generator),
            (FETCHERS, "__next__", self._wrap_ahead),
        ):
            for kind in imported(names):
                if kind not in self._wrapped:
                    self._wrapped.add(kind)
                    self._patches.wrap(kind, method, wrapper)

    def _wrap_generator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def iterate(loader: Any) -> Any:
            return Handed(original(loader))

        return iterate

    def _wrap_ahead(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What such a loader asks for meanwhile belongs to later steps."""

        def fetch_ahead(iterator: Any) -> Any:
            self._ahead = True
            try:
                return original(iterator)
            finally:
                self._ahead = False

        noted = self._wrap_next(fetch_ahead)

        def fetch(iterator: Any) -> Any:
            return noted(iterator) if fetches_ahead(iterator) else original(iterator)

        return fetch

    def _wrap_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            self._asked.note(iterator, index)
            return index

        return next_index

    def _wrap_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any) -> Any:
            if not self.active() or self._ahead:
                item = original(iterator)
                self._asked.take(iterator)
                return item
            self.on_fetch()
            again = self._next_again(iterator)
            if again is not None:
                return self._repeat(again)
            before = self.randomness.save()
            try:
                item = original(iterator)
            except StopIteration:
                self.given = [b for b in self.given if b.iterator() is not iterator]
                raise
            self._note(iterator, item, before)
            return item

        return fetch

    def _note(self, iterator: Any, item: Any, before: Saved) -> None:
        self.ever = True
        index = self._asked.take(iterator)
        self.on_given(index)
        self.given.append(Batch(iterator, item, index, before, self.randomness.save()))
        while len(self.given) > 1 and sum(b.bytes for b in self.given) > MAX_BYTES:
            del self.given[0]
            self.lost = True

    def keep_last(self) -> None:
        """Of a step that was not recorded: what the loader gave is all that is known."""
        if self.given:
            last = self.given[-1]
            indices = last.index if isinstance(last.index, list) else None
            keep_batch(tensors_in(last.item), None, indices)

    def begin_step(self) -> None:
        """What was given belongs to the step that is over."""
        self.given.clear()
        self.lost = False

    # ---- giving them again ------------------------------------------------------------

    def can_repeat(self) -> bool:
        if not self.ever:
            return True  # the loop makes its own batches, perhaps from the random numbers
        return bool(self.given) and not self.lost and all(b.is_untouched() for b in self.given)

    def repeat(self) -> None:
        """The next items that the loop asks for are the ones it already had."""
        self._queue = list(self.given)
        self.given.clear()

    def drop(self) -> None:
        """No more repeats; the random numbers go on as if the last batch had been left out."""
        self._queue.clear()
        if self.given:
            self.randomness.restore(self.given[-1].after)

    def stop_repeating(self) -> None:
        self._queue.clear()

    def _next_again(self, iterator: Any) -> Batch | None:
        for batch in self._queue:
            if batch.iterator() is iterator:
                self._queue.remove(batch)
                return batch
        return None

    def _repeat(self, batch: Batch) -> Any:
        iterator = batch.iterator()
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if batch.index is not None and fetcher is not None and _is_map_style(iterator):
            # Ask the dataset again: what its code does belongs to the step, too.
            self.randomness.restore(batch.before)
            item = fetcher.fetch(batch.index)
        else:
            item = batch.item
        self.randomness.restore(batch.after)
        self.on_given(batch.index)
        again = Batch(iterator, item, batch.index, batch.before, batch.after)
        self.given.append(again)
        return item


def _is_map_style(iterator: Any) -> bool:
    return not isinstance(iterator._dataset, torch.utils.data.IterableDataset) and not getattr(
        iterator, "_pin_memory", False
    )
