"""The batches of the current step, so that the loop can be given them once more."""

from __future__ import annotations

import contextlib
import weakref
from pathlib import Path
from typing import Any

from whynan.record.batches import keep_batch
from whynan.seam.loading import Fetch
from whynan.seam.members import can_fetch_again, fetch_again
from whynan.seam.private import version_of
from whynan.seam.randomness import Randomness, Saved
from whynan.seam.tensors import tensors_in

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
        self.versions = [version_of(t) for t in tensors if not t.is_inference()]
        self.bytes = sum(t.numel() * t.element_size() for t in tensors)

    def is_untouched(self) -> bool:
        """Whether nobody wrote into it since."""
        now = [version_of(t) for t in tensors_in(self.item) if not t.is_inference()]
        return now == self.versions


class Again:
    """A batch that is handed out once more."""

    def __init__(self, batch: Batch, randomness: Randomness) -> None:
        self._batch = batch
        self._randomness = randomness

    def hand_out(self) -> tuple[Any, Any]:
        """The item and its index. A dataset is asked again: what its code does belongs to the step."""
        batch = self._batch
        iterator, item = batch.iterator(), batch.item
        with contextlib.suppress(Exception):  # it cannot be asked twice
            if batch.index is not None and can_fetch_again(iterator):
                self._randomness.restore(batch.before)
                item = fetch_again(iterator, batch.index)
        with contextlib.suppress(Exception):
            self._randomness.restore(batch.after)
        return item, batch.index


class Batches:
    """What loaders gave in this step, and gives it again when the step is repeated."""

    def __init__(self, randomness: Randomness) -> None:
        self.randomness = randomness
        self.given: list[Batch] = []  # in this step
        self.ever = False  # a loader is in use at all
        self.lost = False  # some batch of this step is no longer here
        self._queue: list[Batch] = []

    def fetch_begins(self, fetch: Fetch) -> Again | None:
        """What is to be handed out again; else None."""
        batch = self._next_again(fetch.iterator)
        fetch.before = self.randomness.save() if batch is None else batch.before
        return None if batch is None else Again(batch, self.randomness)

    def fetch_ends(self, fetch: Fetch) -> None:
        if fetch.is_inner or fetch.before is None:
            return
        if fetch.has_ended:
            self.given = [b for b in self.given if b.iterator() is not fetch.iterator]
            return
        self.ever = True
        after = self.randomness.save()
        self.given.append(Batch(fetch.iterator, fetch.item, fetch.index, fetch.before, after))
        while len(self.given) > 1 and sum(b.bytes for b in self.given) > MAX_BYTES:
            del self.given[0]
            self.lost = True

    def keep_last(self, path: Path | None) -> None:
        """Of a step that was not recorded: what the loader gave is all that is known."""
        if self.given:
            last = self.given[-1]
            indices = last.index if isinstance(last.index, list) else None
            keep_batch(path, tensors_in(last.item), None, indices)

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
