"""On a device, whether a value is finite is asked at once and read later, for many operations together.

The question is a kernel; waiting for its answer after every operation would be what costs. So the answers come in
bulk, and what the hot path does on the CPU as it goes (who is tainted, which record made it) is done then,
in the same order. Until then the bytes are held, within a share of the device's free memory.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from whynan.record.records import Record, record_refs
from whynan.record.retention import suspect
from whynan.record.saving import MAX_COPIED, drop
from whynan.record.storages import Entry, Ref
from whynan.seam.devices import budget, stream_of, wait_for_all
from whynan.seam.stats import fetched, worst

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

MAX_QUESTIONS = 512
MOST_BYTES = 4 << 30  # held on a device, however much is free
NO_QUESTION = -1  # nothing in it


class Met(NamedTuple):
    """A storage was seen that nothing recorded made."""

    entry: Entry
    question: int


class Written(NamedTuple):
    """One result of an operation."""

    record: Record
    position: int  # among its outputs
    entry: Entry
    is_whole: bool
    question: int


class Ended(NamedTuple):
    """All results of an operation are there."""

    record: Record
    averages: list[Any]


class Later:
    """What is still to be read, in the order in which it happened."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._lock = threading.Lock()  # several threads may compute
        self._begin()

    def _begin(self) -> None:
        self._events: list[Met | Written | Ended] = []
        self._questions: list[torch.Tensor] = []
        self._held: dict[Entry, torch.UntypedStorage] = {}
        self._changed: dict[Entry, list[tuple[int, Ref, torch.Tensor]]] = {}
        self._copied: list[tuple[Record, torch.Tensor]] = []  # large operands
        self._streams: set[tuple[torch.device, int]] = set()
        self._room: dict[torch.device, int] = {}  # bytes that may still be held
        self._last: Record | None = None

    def __bool__(self) -> bool:
        return bool(self._events)

    # ---- asking -------------------------------------------------------------------------

    def met(self, entry: Entry, tensor: torch.Tensor) -> None:
        question = worst(tensor.detach())
        with self._lock:
            self._events.append(Met(entry, self._add(question, tensor.device)))

    def written(
        self, record: Record, position: int, entry: Entry, is_whole: bool, tensor: torch.Tensor
    ) -> None:
        if record is not self._last:
            self._last = record
            for ref in record_refs(record):
                self._hold(ref[0], tensor.device)
        self._hold(entry, tensor.device)
        question = worst(tensor.detach())
        with self._lock:
            number = self._add(question, tensor.device)
            self._events.append(Written(record, position, entry, is_whole, number))

    def ends(self, record: Record, averages: list[Any]) -> bool:
        """Whether this operation is to be judged later."""
        if record is not self._last:
            return False
        self._events.append(Ended(record, averages))
        if len(self._questions) > MAX_QUESTIONS or min(self._room.values(), default=0) < 0:
            self.settle()
        return True

    def changes(self, index: int, ref: Ref, tensor: torch.Tensor) -> None:
        """An operand of operations that nobody has judged yet is about to be overwritten."""
        if ref[0] in self._held and tensor.numel() <= MAX_COPIED:
            copies = self._changed.setdefault(ref[0], [])
            copies.append((index, ref, tensor.detach().clone()))

    def writes(self, record: Record) -> None:
        """A computed number is applied in place, as by `clip_grad_norm_`. If that number hides an
        overflow, what it should have been follows from the operands, while they are there."""
        single = [r for r in record.args[1:] if isinstance(r, Ref) and math.prod(r.shape) == 1]
        if any(ref[0] in self._held and ref.dtype.is_floating_point for ref in single):
            self.settle()

    def copy(self, record: Record, tensor: torch.Tensor) -> torch.Tensor | None:
        """Of a large operand that is about to be overwritten; None: all is known, and nothing asks
        for it."""
        size, device = tensor.numel() * tensor.element_size(), tensor.device
        if self._room.get(device, 0) < size:
            self.settle()
            return tensor.detach().clone() if self._tracer.shadowing else None
        self._room[device] -= size
        made = tensor.detach().clone()
        self._copied.append((record, made))
        return made

    def _add(self, question: torch.Tensor | None, device: torch.device) -> int:
        if question is None:
            return NO_QUESTION
        self._streams.add((device, stream_of(device)))
        self._questions.append(question)
        return len(self._questions) - 1

    def _hold(self, entry: Entry, device: torch.device) -> None:
        if entry in self._held or (storage := entry.storage()) is None:
            return
        self._held[entry] = storage
        if not entry.leaf:  # the program itself holds those
            if device not in self._room:
                self._room[device] = budget(device, MOST_BYTES)
            self._room[device] -= entry.nbytes

    # ---- reading ------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for the answers, and do what follows from them."""
        if not self._events:
            return
        with self._lock:
            events, questions, streams = self._events, self._questions, self._streams
            held, changed, copied = self._held, self._changed, self._copied
            self._begin()
        if any(stream_of(device) != stream for device, stream in streams):
            wait_for_all({device for device, _ in streams})
        answers = fetched(questions)
        if self._tracer.met_bad or any(a - a != 0 for a in answers):
            bad = [a - a != 0 for a in answers] + [False]  # NO_QUESTION
            self._follow(events, bad, changed)
        if not self._tracer.met_bad:
            for record, copy in copied:
                drop(record, copy)
        del held  # until here: what explains a bad value is kept by its record now

    def _follow(
        self, events: list[Met | Written | Ended], bad: list[bool],
        changed: dict[Entry, list[tuple[int, Ref, torch.Tensor]]],
    ) -> None:  # fmt: skip
        tracer, begun = self._tracer, None
        for event in events:
            if isinstance(event, Met):
                if bad[event.question]:
                    event.entry.tainted = tracer.met_bad = True
                continue
            record = event.record
            if record is not begun:
                begun = record
                _find_tainted(record)
            if isinstance(event, Ended):
                conclude(tracer, record, event.averages)
                if record.bad and changed:
                    _put_copies(record, changed)
                continue
            entry, is_bad = event.entry, bad[event.question]
            if is_bad:
                tracer.met_bad = True
                record.bad += (event.position,)
            if event.is_whole:
                entry.tainted = is_bad
                entry.overflowed = False
            elif is_bad:
                entry.tainted = True


def conclude(tracer: Tracer, record: Record, averages: list[Any]) -> None:
    """What an operation's results mean for others."""
    if record.bad:
        suspect(tracer, record)
        if averages:
            tracer.follower.average_spoilt(averages)
    elif record.tainted_in:
        tracer.follower.absorbed(record)
    if tracer.shadowing:
        tracer.follower.shadowed(record)


def _find_tainted(record: Record) -> None:
    """As the operation found its operands."""
    overwritten = record.args[0] if record.info.overwrites and record.args else None
    tainted = [ref for ref in record_refs(record) if ref[0].tainted and ref is not overwritten]
    record.tainted_in = tainted or None


def _put_copies(record: Record, changed: dict[Entry, list[tuple[int, Ref, torch.Tensor]]]) -> None:
    """Of operands that were overwritten before anybody knew that they are needed."""
    written = [ref[0] for ref in record.outs]  # has its own copies
    for position, arg in enumerate(record.args):
        if not isinstance(arg, Ref) or arg[0] not in changed or arg[0] in written:
            continue
        copies = [c for index, ref, c in changed[arg[0]] if index > record.index and ref == arg]
        if copies:
            record.before = {**(record.before or {}), position: copies[0]}
