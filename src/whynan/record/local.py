"""What the recorder knows about one thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import torch

from whynan.record.records import Origin, Record
from whynan.record.storages import Holder
from whynan.seam.sites import Frames


class Local:
    """What differs from thread to thread."""

    def __init__(self, hold_bytes: int) -> None:
        self.data = 0  # inside a DataLoader
        self.optimizer: torch.optim.Optimizer | None = None
        self.step_frame: Any = None
        self.optimizer_frames: Frames | None = None  # of step(), when torch wrote what is inside
        self.differentiated = False  # a backward pass ended since the last update
        self.differentiated_at = -1  # index of the first operation after that
        self.updated = False  # a leaf was written by hand after that
        self.made: dict[int, Origin] = {}  # by autograd sequence number
        self.claimed = 0  # the sequence numbers below this one have their origin
        # Another thread's tensors must not be touched while that thread computes.
        self.thread = threading.get_ident()
        self.holder = Holder(hold_bytes)
        self.leaves: dict[int, Any] = {}
        self.kept: deque[tuple[Record, int]] = deque()
        self.kept_bytes = 0


class PerThread(threading.local):
    """Each thread's own `Local`, as one look-up on the hot path."""

    def __init__(self, hold_bytes: int, threads: set[int]) -> None:
        self.local = Local(hold_bytes)
        threads.add(self.local.thread)
