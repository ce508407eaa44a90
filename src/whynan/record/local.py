"""What the recorder knows about one thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import torch

from whynan.record.records import Origin, Record
from whynan.record.storages import Holder
from whynan.seam.sites import Frames


class Nodes:
    """The autograd nodes that one thread has made. Each thread numbers its own."""

    __slots__ = ("claimed", "made")

    def __init__(self) -> None:
        self.made: dict[int, Origin] = {}  # by autograd sequence number
        self.claimed = 0  # the sequence numbers below this one have their origin

    def forget(self, beyond: int) -> None:
        """The older half, where there are more."""
        if len(self.made) > beyond:
            for number in list(self.made)[: (len(self.made) + 1) // 2 if beyond else None]:
                del self.made[number]


class Local:
    """What differs from thread to thread. A device's own thread, in which autograd runs, has none: it
    works for the thread that asked for gradients."""

    def __init__(self, hold_bytes: int) -> None:
        self.data = 0  # inside a DataLoader
        self.optimizer: torch.optim.Optimizer | None = None
        self.step_frame: Any = None
        self.optimizer_frames: Frames | None = None  # of step(), when torch wrote what is inside
        self.backward_frames: Frames | None = None  # where the last backward pass was asked for
        self.differentiated = False  # a backward pass ended since the last update
        self.differentiated_at = -1  # index of the first operation after that
        self.updated = False  # a leaf was written by hand after that
        self.replaced = False  # a leaf was met after that which was none before
        self.nodes = Nodes()
        self.elsewhere: dict[int, Nodes] = {}  # made in a device's thread, by its number
        # Another thread's tensors must not be touched while that thread computes.
        self.thread = threading.get_ident()
        self.holder = Holder(hold_bytes)
        self.leaves: dict[int, Any] = {}
        self.kept: deque[tuple[Record, int]] = deque()
        self.kept_bytes = 0

    def nodes_here(self) -> Nodes:
        """Those of the thread that runs, which may be a device's."""
        here = threading.get_ident()
        return self.nodes if here == self.thread else self.elsewhere.setdefault(here, Nodes())

    def begin_turn(self) -> None:
        self.updated = self.replaced = self.differentiated = False

    def forget_nodes(self, beyond: int = 0) -> None:
        for nodes in (self.nodes, *self.elsewhere.values()):
            nodes.forget(beyond)


class PerThread(threading.local):
    """Each thread's own `Local`, as one look-up on the hot path."""

    def __init__(self, hold_bytes: int, threads: set[int]) -> None:
        self.local = Local(hold_bytes)
        self._threads = threads
        threads.add(self.local.thread)

    def work_for(self, local: Local) -> None:
        """This is a device's thread, and what it does is that thread's."""
        self._threads.discard(threading.get_ident())
        self.local = local
