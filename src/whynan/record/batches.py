"""The last batch: what went into the model, and which items of the dataset it was made of."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from whynan import voice
from whynan.files import replacing
from whynan.model import Fetch, Sample
from whynan.record.checks import Checks
from whynan.record.storages import MAX_COPY, is_torchs
from whynan.seam.loading import Fetch as Loaded
from whynan.seam.loading import Streamed
from whynan.seam.members import dataset_of, workers_of
from whynan.seam.private import address_of, has_storage, storage_id
from whynan.seam.reading import can_be_read, plain_of
from whynan.seam.tensors import tensors_in
from whynan.seam.versions import watch_storage

MAX_BEHIND = 8
MAX_COLUMNS = 64
Watched = weakref.ref[torch.UntypedStorage]


class Batches:
    """Holds the model's last inputs, and nothing older."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.save_to: Path | None = None  # where the failing batch is kept for the user
        self.inputs: list[torch.Tensor] = []
        self.packed = False  # their rows are times of sequences
        self.indices: list[int] | None = None  # of the dataset, for the last batch of a DataLoader
        self.streamed: Streamed | None = None  # of a stream with workers, instead
        self.fetches = 0  # batches of all loaders
        self._newer = 0  # of them, those that were asked for after the one that is worked on
        self._columns: list[tuple[str, weakref.ref[torch.Tensor]]] = []
        self._owners: weakref.ref[torch.Tensor] | None = None
        self.workers = 0  # processes that the last batch came from
        self.iterator: Callable[[], Any] = lambda: None  # that gave it, while it lives
        # Of batches that a worker made bad, by their number: the program may tell at its end.
        self._behind: dict[int, tuple[Any, list[int] | None]] = {}
        self._is_ahead = False  # the last batch may be a later step's
        # Of such loaders: the storages of some batches, while they live, and the items of each.
        self._recent: deque[tuple[list[Watched], list[int] | None]] = deque(maxlen=8)
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # with parameters

    def clear(self) -> None:
        """What was fetched ahead is only watched, and belongs to steps that are still to come."""
        self.inputs, self.indices = [], None

    def keep_dataset(self) -> None:
        """The one behind the last batch may be asked again, perhaps when its loop is over."""
        iterator = self.iterator()
        if iterator is not None and len(self._behind) < MAX_BEHIND:
            number = self.fetches - self._newer
            self._behind.setdefault(number, (dataset_of(iterator), self.indices))

    def behind(self, fetch: Fetch | None) -> tuple[Any, list[int] | None]:
        """What can be asked for the items of a batch, and which they are."""
        now = self.iterator(), self.indices
        return now if fetch is None else self._behind.get(fetch.number, now)

    def last_fetch(self) -> Fetch | None:
        """Which batch of the run it was; the model must have been given as many samples."""
        size = len(self.indices or ()) or (len(self.inputs[0]) if self.inputs else 0)
        if not self.fetches or not size or (self.inputs and len(self.inputs[0]) != size):
            return None
        indices = tuple(self.indices) if self.indices is not None else None
        return Fetch(number=self.fetches - self._newer, size=size, indices=indices)

    def columns(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors of the last batch, as the loader gave it, by what the program calls them."""
        found = [(name, tensor()) for name, tensor in self._columns]
        return [(name, plain_of(t)) for name, t in found if t is not None and can_be_read(t)]

    def stream_item(self, row: int) -> str | None:
        """Of a stream with workers, what can be said of a sample: its place in what one of them gave."""
        one = self.streamed
        if one is None:
            return None
        return f"item {one.first + row} of those from worker {one.worker} of {one.of}"

    def owners(self) -> torch.Tensor | None:
        """Of items that were joined, as graphs are: which one each row of the batch belongs to."""
        return self._owners() if self._owners is not None else None

    def save(self, sample: Sample | None) -> None:
        """Write the batch for the user to look at, if that is asked for."""
        if self.inputs:
            row = sample.index if sample is not None else None
            keep_batch(self.save_to, self.inputs, row, self.indices)

    def note_inputs(self, module: torch.nn.Module, args: Any) -> None:
        """Of modules with parameters: a loss function is given results, not a batch."""
        if module not in self._models:
            if next(module.parameters(), None) is None:
                return
            self._models.add(module)
        self._keep(args)

    def _keep(self, args: Any) -> None:
        """Detached: neither the graph behind an input nor the program's own object is kept alive."""
        given = [t for t in tensors_in(args) if type(t) is not torch.nn.Parameter and t.dim() > 0]
        plain = [plain_of(t) for t in given if can_be_read(t)]
        dense = [t for t in plain if t.layout is torch.strided]
        self.inputs = [kept for t in dense if (kept := _kept(t)) is not None]
        self.packed = any(isinstance(arg, torch.nn.utils.rnn.PackedSequence) for arg in args)
        self._mark([] if self.packed else dense)
        if self._is_ahead:
            known = {storage_id(t) for t in plain if has_storage(t)}
            newest = reversed(self._recent)
            self.indices = next((items for made, items in newest if known & _alive(made)), None)

    def _mark(self, tensors: list[torch.Tensor]) -> None:
        """Their rows are samples."""
        for tensor in tensors:
            window = self.checks.tracer.ref(tensor)
            if window is not None:
                window.entry.batch = window

    def _note(self, batch: Any, *, recording: bool) -> None:
        self._columns = [(name, weakref.ref(t)) for name, t in _named(batch)]
        owners = _owners_in(batch)
        self._owners = None if owners is None else weakref.ref(owners)
        if owners is not None and recording:
            self._mark(_rows_of(_fields(batch), len(owners)))

    def handed_on(self, fetch: Loaded, *, recording: bool) -> None:
        """A loader that is ahead of what it hands out has handed out one that it was given before."""
        if fetch.is_early or not isinstance(fetch.index, list):
            return
        self._note(fetch.item, recording=recording)
        self.indices, self._is_ahead, self._newer = _numbers(fetch.index), False, fetch.newer
        if recording and self.indices is not None:
            self._mark(_rows_of(fetch.item, len(self.indices)))

    def given(self, fetch: Loaded, *, recording: bool) -> None:
        """A loader has handed out a batch."""
        self.fetches += not fetch.is_again
        self.workers = workers_of(fetch.iterator)
        self.iterator = weakref.ref(fetch.iterator)
        self._note(fetch.item, recording=recording)
        self.indices = _numbers(fetch.index)
        self.streamed = fetch.index if isinstance(fetch.index, Streamed) else None
        self._is_ahead, self._newer = fetch.is_early, 0
        if recording and self.indices is not None:
            self._mark(_rows_of(fetch.item, len(self.indices)))
        if self._is_ahead:
            made = [t for t in tensors_in(fetch.item) if has_storage(t)]
            watched = [watch_storage(t.untyped_storage()) for t in made]
            self._recent.append((watched, self.indices))
            self.streamed = None
            self.indices = None  # until it is known which one a step is about


def _owners_in(batch: Any) -> torch.Tensor | None:
    """torch_geometric's way to say it, and of those who do as it does."""
    found = None if isinstance(batch, (torch.Tensor, Mapping)) else getattr(batch, "batch", None)
    fits = type(found) is torch.Tensor and found.dim() == 1 and found.dtype is torch.int64
    return found if fits else None


def _fields(batch: Any) -> list[Any]:
    """What such a batch holds."""
    try:
        return [batch[name] for name in batch.keys()]  # noqa: SIM118 # it is no dictionary
    except (TypeError, AttributeError, KeyError):
        return []


def _numbers(index: Any) -> list[int] | None:
    """What the dataset was asked for, if that is a list of whole numbers."""
    listed = list(index) if isinstance(index, (list, tuple)) else []
    return listed if listed and all(type(i) is int for i in listed) else None


def _named(batch: Any, name: str = "", depth: int = 3) -> Iterator[tuple[str, torch.Tensor]]:
    """`price` of `{"price": ...}`; what has a place only has no name."""
    if isinstance(batch, torch.Tensor):
        yield name, batch
    elif isinstance(batch, Mapping) and depth:
        for key, value in batch.items():
            yield from _named(value, key if isinstance(key, str) else name, depth - 1)
    elif isinstance(batch, (list, tuple)) and depth:
        for value in batch[:MAX_COLUMNS]:
            yield from _named(value, name, depth - 1)


def _alive(storages: list[Watched]) -> set[int]:
    """Those that are still there: the address of one that is gone may be another's."""
    return {address_of(s) for watched in storages if (s := watched()) is not None}


def _rows_of(batch: Any, size: int) -> list[torch.Tensor]:
    """The tensors of a loader's batch that have a row for each item."""
    found = [plain_of(t) for t in tensors_in(batch) if can_be_read(t) and t.dim() > 0]
    return [t for t in found if len(t) == size and t.layout is torch.strided]


def _kept(tensor: torch.Tensor) -> torch.Tensor | None:
    """Memory that is not torch's own, as a NumPy array's, may be gone when it is looked at."""
    if is_torchs(tensor.untyped_storage()):
        return tensor.detach()
    small = tensor.numel() * tensor.element_size() <= MAX_COPY
    return tensor.detach().clone() if small else None


def keep_batch(
    path: Path | None, inputs: list[torch.Tensor], sample: int | None, indices: list[int] | None
) -> None:
    """Whole or not at all; a folder that is gone must not hide the harm or end the training."""
    if path is None:
        return
    try:
        content = {
            "inputs": [t.detach().cpu().clone() for t in inputs],
            "sample": sample,
            "dataset_indices": indices,
        }
        with replacing(path) as stream:
            torch.save(content, stream)
    except Exception as error:
        voice.say(f"could not write the batch {path}: {error}")
