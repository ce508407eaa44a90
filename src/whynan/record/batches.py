"""The last batch: what went into the model, and which items of the dataset it was made of."""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from whynan.files import SAVE_BATCH_TO
from whynan.model import Fetch, Sample
from whynan.record.checks import Checks, tensors_in
from whynan.record.patches import Patches
from whynan.record.sites import beyond_own
from whynan.record.storages import MAX_COPY, is_torchs, storage_id

# They ask their loader for the next batch before the step of the last one.
AHEAD = frozenset({"accelerate", "lightning", "pytorch_lightning", "transformers"})


class Asked:
    """What each loader asked of its dataset and has not handed out yet: workers fetch ahead."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakKeyDictionary[Any, deque[Any]] = weakref.WeakKeyDictionary()

    def note(self, iterator: Any, index: Any) -> None:
        """Only of loaders that are known from their start: else it is not known which is next."""
        begins = not getattr(iterator, "_num_yielded", 1) and not getattr(iterator, "_send_idx", 0)
        if begins or not hasattr(iterator, "_send_idx"):  # without workers, one at a time
            self._waiting[iterator] = deque()
        if iterator in self._waiting and getattr(iterator, "_in_order", True):
            self._waiting[iterator].append(index)

    def take(self, iterator: Any) -> Any:
        """Of the batch that was just handed out; None when that is not known."""
        waiting = self._waiting.get(iterator)
        return waiting.popleft() if waiting else None


class Batches:
    """Holds the model's last inputs, and nothing older."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.inputs: list[torch.Tensor] = []
        self.packed = False  # their rows are times of sequences
        self.indices: list[int] | None = None  # of the dataset, for the last batch of a DataLoader
        self.fetches: int | None = None  # batches of all loaders; None: not counted from the start
        self.workers = 0  # processes that the last batch came from
        self.iterator: Callable[[], Any] = lambda: None  # that gave it, while it lives
        self.given: Any = None  # the indices, as the guard knows them, which looks on all the time
        self._is_ahead = False  # the last batch may be a later step's
        # Of such loaders: the storages of some batches, and the items each was made of.
        self._recent: deque[tuple[set[int], list[int] | None]] = deque(maxlen=8)
        self._installed = False
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # with parameters
        self._asked = Asked()

    def install(self, patches: Patches) -> None:
        self.fetches = None if self._installed else 0
        self._installed = True
        self._asked = Asked()  # what happened meanwhile is not known here
        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        patches.wrap(iterator, "_next_index", self._wrap_next_index)
        patches.wrap(iterator, "__next__", self._wrap_next)

    def clear(self) -> None:
        self.inputs, self.indices = [], None
        self._recent.clear()

    def last_fetch(self) -> Fetch | None:
        """Which batch of the run it was; the model must have been given as many samples."""
        size = len(self.indices or ()) or (len(self.inputs[0]) if self.inputs else 0)
        if not self.fetches or not size or (self.inputs and len(self.inputs[0]) != size):
            return None
        indices = tuple(self.indices) if self.indices is not None else None
        return Fetch(number=self.fetches, size=size, indices=indices)

    def save(self, sample: Sample | None) -> None:
        """Write the batch where the environment asks for it, for the user to look at."""
        if self.inputs:
            keep_batch(self.inputs, sample.index if sample is not None else None, self.indices)

    def note_inputs(self, module: torch.nn.Module, args: Any) -> None:
        """Of modules with parameters: a loss function is given results, not a batch."""
        if module not in self._models:
            if next(module.parameters(), None) is None:
                return
            self._models.add(module)
        self.checks.quietly(lambda: self._keep(args))

    def _keep(self, args: Any) -> None:
        """Detached: neither the graph behind an input nor the program's own object is kept alive."""
        plain = [t for t in tensors_in(args) if type(t) is torch.Tensor and t.dim() > 0]
        dense = [t for t in plain if t.layout is torch.strided and not t.is_meta]
        self.inputs = [kept for t in dense if (kept := _kept(t)) is not None]
        self.packed = any(isinstance(arg, torch.nn.utils.rnn.PackedSequence) for arg in args)
        self._mark([] if self.packed else dense)
        if self._is_ahead:
            given = _storages(plain)
            newest = reversed(self._recent)  # an address may be used again
            self.indices = next((items for made, items in newest if made & given), None)

    def _mark(self, tensors: list[torch.Tensor]) -> None:
        """Their rows are samples."""
        for tensor in tensors:
            window = self.checks.tracer.ref(tensor)
            if window is not None:
                window.entry.batch = window

    def _wrap_next_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def next_index(iterator: Any) -> Any:
            index = original(iterator)
            self._asked.note(iterator, index)
            return index

        return next_index

    def _wrap_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any) -> Any:
            self.given = None
            batch = original(iterator)
            if self.fetches is not None:
                self.fetches += 1
            self.workers = int(getattr(iterator, "_num_workers", 0))
            self.iterator = weakref.ref(iterator)
            asked = self._asked.take(iterator)
            index = asked if self.given is None else self.given
            listed = list(index) if isinstance(index, (list, tuple)) else []
            self.indices = listed if listed and all(type(i) is int for i in listed) else None
            if self.indices is not None:
                self.checks.quietly(lambda: self._mark(_rows_of(batch, len(listed))))
            caller = beyond_own(sys._getframe(1)).f_globals.get("__name__", "")
            self._is_ahead = caller.split(".")[0] in AHEAD
            if self._is_ahead:
                self._recent.append((_storages(tensors_in(batch)), self.indices))
                self.indices = None  # until it is known which one a step is about
            return batch

        return fetch


def _storages(tensors: list[torch.Tensor]) -> set[int]:
    return {storage_id(t) for t in tensors if torch._C._has_storage(t)}


def _rows_of(batch: Any, size: int) -> list[torch.Tensor]:
    """The tensors of a loader's batch that have a row for each item."""
    found = [t for t in tensors_in(batch) if type(t) is torch.Tensor and t.dim() > 0]
    return [t for t in found if len(t) == size and t.layout is torch.strided and not t.is_meta]


def _kept(tensor: torch.Tensor) -> torch.Tensor | None:
    """Memory that is not torch's own, as a NumPy array's, may be gone when it is looked at."""
    if is_torchs(tensor.untyped_storage()):
        return tensor.detach()
    small = tensor.numel() * tensor.element_size() <= MAX_COPY
    return tensor.detach().clone() if small else None


def keep_batch(inputs: list[torch.Tensor], sample: int | None, indices: list[int] | None) -> None:
    """Whole or not at all; a folder that is gone must not end the user's training."""
    path = os.environ.get(SAVE_BATCH_TO)
    if not path:
        return
    content = {
        "inputs": [t.detach().cpu().clone() for t in inputs],
        "sample": sample,
        "dataset_indices": indices,
    }
    try:
        torch.save(content, f"{path}.part")
        os.replace(f"{path}.part", path)
    except (OSError, RuntimeError) as error:
        print(f"whynan: could not write the batch {path}: {error}", file=sys.stderr)
