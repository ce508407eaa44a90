"""Which file a tensor was loaded from, for as long as its memory lives."""

from __future__ import annotations

import os
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
        return mapped_file(entry.storage())


def mapped_file(storage: torch.UntypedStorage | None) -> str | None:
    """The file that this memory is a view of, as the system tells where it can."""
    if storage is None or storage.device.type != "cpu":
        return None
    address = storage.data_ptr()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                span, *_, path = line.rstrip("\n").split(None, 5)
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= address < last:
                    return path if path.startswith("/") and os.path.isfile(path) else None
    except (OSError, ValueError):
        return None
    return None
