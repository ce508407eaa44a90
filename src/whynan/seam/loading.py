"""Batches that a program is handed, and random generators that it makes, as events."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from whynan.seam.events import Events
from whynan.seam.members import (
    asks_workers,
    is_a_stream,
    is_at_start,
    is_in_order,
    next_worker,
    workers_of,
)
from whynan.seam.patches import Patches
from whynan.seam.private import NEXT_INDEX, LoaderIterator
from whynan.seam.sites import beyond_own

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
# They ask their loader for the next batch before the step of the last one.
AHEAD = frozenset({"accelerate", "lightning", "pytorch_lightning", "transformers"})


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one of several workers gave of its own pass through a stream."""

    worker: int
    first: int  # of its items
    of: int  # workers


@dataclass(slots=True)
class Fetch:
    """One batch that was asked for; complete when it is there."""

    iterator: Any
    frame: FrameType
    is_early: bool  # a framework asks for it before the step of the last one is over
    is_inner: bool = False  # by a loader that hands it out later
    item: Any = None
    index: Any = None  # what the dataset was asked for, where that is known
    is_again: bool = False  # it was handed out before
    before: Any = None  # for whoever notes what was before it
    has_ended: bool = False  # there was none left
    newer: int = (
        0  # batches that were asked for since, by a loader that is ahead of what it hands out
    )


def install(events: Events, patches: Patches) -> None:
    loaders = Loaders(events, patches)
    patches.wrap(Handed, "__next__", loaders.wrap_ahead)
    patches.wrap(LoaderIterator, "__next__", loaders.wrap_next)
    patches.wrap(LoaderIterator, NEXT_INDEX, loaders.wrap_index)
    events.listen(loaders)


class Loaders:
    """Stands between the program and its DataLoaders."""

    def __init__(self, events: Events, patches: Patches) -> None:
        self._events = events
        self._patches = patches
        self._asked = _Asked()
        self._wrapped: set[type] = set()
        self._ahead = False  # a loader that fetches ahead is at work

    def optimizer_made(self, optimizer: Any) -> None:
        """Before the first batch: which loaders has the program imported meanwhile?"""
        for names, method, wrapper in (
            (GENERATORS, "__iter__", _wrap_generator),
            (FETCHERS, "__next__", self.wrap_ahead),
        ):
            for kind in _imported(names):
                if kind not in self._wrapped:
                    self._wrapped.add(kind)
                    self._patches.wrap(kind, method, wrapper)

    def wrap_ahead(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What such a loader asks for meanwhile belongs to later steps."""

        def fetch_ahead(iterator: Any) -> Any:
            self._ahead = True
            self._asked.begin_ahead()
            try:
                return original(iterator)
            finally:
                self._ahead = False

        noted = self.wrap_next(fetch_ahead)

        def fetch(iterator: Any) -> Any:
            return noted(iterator) if _fetches_ahead(iterator) else original(iterator)

        return fetch

    def wrap_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            self._asked.note(iterator, index)
            return index

        return next_index

    def wrap_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any) -> Any:
            frame = beyond_own(sys._getframe(1))
            caller = frame.f_globals.get("__name__", "").split(".")[0]
            this = Fetch(iterator, frame, self._ahead or caller in AHEAD, self._ahead)
            if self._ahead or not self._events.quiet.active:
                try:
                    this.item = original(iterator)
                except StopIteration:
                    self._asked.has_ended = True
                    raise
                this.index = self._asked.take(iterator)
                if self._ahead:
                    self._asked.early.append(this.index)
                self._events.tell("fetch_ends", this)
                return this.item
            return self._fetch(original, this)

        return fetch

    def _fetch(self, original: Callable[..., Any], this: Fetch) -> Any:
        again = self._events.tell("fetch_begins", this)
        this.is_again = again is not None
        try:
            if again is not None:  # what a dataset does then is the program's work
                this.item, this.index = again.hand_out()
            else:
                this.item = original(this.iterator)
                this.index, this.newer = self._asked.handed(this.iterator)
        except BaseException:
            this.has_ended = True
            raise
        finally:
            self._events.tell("fetch_ends", this)
        return this.item


class _Asked:
    """What each loader asked of its dataset and has not handed out yet: workers fetch ahead."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()
        self._counted: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._by_worker: weakref.WeakKeyDictionary[Any, dict[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._held: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()
        self.early: list[Any] = []  # what a loader beneath was asked for, by one that is ahead
        self.has_ended = False  # and had none left

    def note(self, iterator: Any, index: Any) -> None:
        """Only of loaders that are known from their start: else it is not known which is next.
        The items of a stream are counted."""
        if is_at_start(iterator):
            self._counted[iterator] = 0
        if iterator in self._counted and isinstance(index, list) and is_a_stream(iterator):
            first = self._counted[iterator]
            self._counted[iterator] = first + len(index)
            index = [*range(first, first + len(index))]
        worker = next_worker(iterator) if isinstance(index, list) else None
        if worker is not None:
            counts = self._by_worker.setdefault(iterator, {})
            if is_at_start(iterator):
                counts.clear()
            streamed = Streamed(worker, counts.get(worker, 0), workers_of(iterator))
            counts[worker] = streamed.first + len(index)
            index = streamed
        if is_at_start(iterator) or not asks_workers(iterator):  # without them, one at a time
            self._waiting[iterator] = deque()
        if iterator in self._waiting and is_in_order(iterator):
            self._waiting[iterator].append(index)

    def begin_ahead(self) -> None:
        self.early.clear()
        self.has_ended = False

    def handed(self, iterator: Any) -> tuple[Any, int]:
        """Of the batch that is handed out now, and how many were asked for since. A loader that is
        ahead of what it hands out is so by one, until the one beneath it has none left."""
        if not isinstance(iterator, Handed):
            return self.take(iterator), 0
        held = self._held.setdefault(iterator, deque(maxlen=2))
        held.extend(self.early)
        newer = 0 if self.has_ended or not self.early else 1
        return (held[-1 - newer] if len(held) > newer else None), newer

    def take(self, iterator: Any) -> Any:
        """Of the batch that was just handed out; None when that is not known."""
        waiting = self._waiting.get(iterator)
        return waiting.popleft() if waiting else None


def _imported(names: tuple[tuple[str, str], ...]) -> Iterator[type]:
    """Those of the classes whose modules the program has imported."""
    for module, name in names:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind


def _wrap_generator(original: Callable[..., Any]) -> Callable[..., Any]:
    def iterate(loader: Any) -> Any:
        return Handed(original(loader))

    return iterate


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


def _fetches_ahead(iterator: Any) -> bool:
    """Whether the loader beneath is ahead of what this one hands out."""
    return isinstance(iterator, Handed) or getattr(iterator, "length", 0) is None
