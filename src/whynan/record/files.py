"""Which file a tensor was loaded from, for as long as its memory lives."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import torch

from whynan.record.storages import Entry
from whynan.seam.private import has_storage, storage_id
from whynan.seam.tensors import saved_tensors
from whynan.seam.versions import watch_storage

MAX_FILES = 16
Watched = weakref.ref[torch.UntypedStorage]


class LoadedFiles:
    """Knows the storages of the last files that the program has loaded, and keeps none."""

    def __init__(self) -> None:
        self._files: deque[tuple[str, dict[int, Watched]]] = deque(maxlen=MAX_FILES)

    def loaded(self, file: str, obj: Any) -> None:
        tensors = [t for t in saved_tensors(obj) if has_storage(t)]
        watched = {storage_id(t): watch_storage(t.untyped_storage()) for t in tensors}
        self._files.append((file, watched))

    def file_of(self, entry: Entry) -> str | None:
        for file, watched in reversed(self._files):
            storage = watched.get(entry.cdata)
            if storage is not None and storage() is not None:
                return file
        return None
