"""The elements that a bad one came from, back to where nothing is recorded any more."""

from __future__ import annotations

import cmath
from bisect import bisect_left
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Any, Literal

import torch

from whynan.record.harm import Harm
from whynan.record.reads import Read, value_before
from whynan.record.records import Record
from whynan.record.relations import reads
from whynan.record.storages import Index, Ref
from whynan.record.tracer import Tracer
from whynan.seam.stats import first_nonfinite, nonfinite_indices, ordinary

MANY = 20_000  # elements visited
WITNESSES = 6  # of one result
MOST_APART = 24  # where they lead to different elements

Element = tuple[Index | None, float | complex | None]
Status = Literal["intended", "uninitialised", "computed"]


class Node:
    """One element of one output on the way back; `record` None: it came from outside."""

    __slots__ = (
        "index", "k", "name", "origin", "parents", "record", "ref", "status", "value", "visited",
    )  # fmt: skip

    def __init__(self, record: Record | None, k: int, index: Index | None, ref: Ref) -> None:
        self.name: str | None = None  # of the harmed tensor
        self.record = record
        self.k = k
        self.index = index
        self.ref = ref
        self.parents: list[Node] = []
        self.value: float | complex | None = None
        self.status: Status = "intended"
        self.origin: Node | None = None
        self.visited = False

    @property
    def order(self) -> int:
        return -1 if self.record is None else self.record.index

    @property
    def rank(self) -> tuple[int, bool]:
        """The earliest first; of one operation's, an element that is known."""
        return self.order, self.index is None


class Ancestry:
    """Walks back over the recorded operations, element by element."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def locate(self, ref: Ref, index: Index | None, before: int) -> Node:
        """Who made this element, of the writers older than `before`."""
        position = None if index is None else ref.position(index)
        writers = ref.entry.writers
        # Those of a buffer that is filled place by place are many: begin at the right one.
        for at in range(bisect_left(writers, (before,)) - 1, -1, -1):
            i, written = writers[at]
            if position is not None and written.offset * written.dtype.itemsize > position:
                continue
            record = self.tracer.records.get(i)
            if record is None:
                continue
            inner = None if position is None else written.index_at(position)
            if position is not None and inner is None:
                continue
            k = next((k for k, out in enumerate(record.outs) if out is written), 0)
            if position is None and ref.entry.tainted and k not in record.bad:
                continue
            return Node(record, k, inner, written)
        return Node(None, 0, index, ref)

    def starts(self, harm: Harm) -> list[Node]:
        """The harmed elements, one for each tensor."""
        found = []
        for tensor, name in zip_longest(harm.tensors, harm.names):
            node = self._start_at(tensor)
            if node is not None:
                node.name = name
                found.append(node)
        if not found and harm.record is not None:
            for read in reads(harm.record, 0, None):
                for index, value in _nonfinite_in(harm.record, read):
                    node = self.locate(read.ref, index, harm.record.index)
                    node.value = value
                    found.append(node)
        return found

    def _start_at(self, tensor: torch.Tensor) -> Node | None:
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            return None
        index = first_nonfinite(tensor)
        if index is None:
            return None
        ref = self.tracer.ref(tensor)
        if ref is None:
            return None
        node = self.locate(ref, index, self.tracer.next_index)
        node.value = tensor[index].item()
        return node

    def explore(self, starts: list[Node]) -> list[Node]:
        """All non-finite ancestors of the sinks, oldest first.

        The latest operation first: when it is its turn, all that was made of its results has been
        seen, so that each is visited once, however many sinks there are and however long the way is.
        """
        seen: dict[Any, Node] = {}
        known: dict[Any, list[Node]] = {}  # by the result they are elements of
        pending: list[tuple[int, int, Node]] = []
        for start in starts:
            seen[_key(start)] = start
            start.visited = True
            heappush(pending, (-start.order, len(pending), start))
        pushed = len(pending)
        while pending:
            node = heappop(pending)[2]
            if node.record is None or node.record.info.entry:
                continue
            alone, others = _most(len(seen))
            for read in reads(node.record, node.k, node.index):
                parents = self._parents(node, read)
                # Another row may have gone bad earlier: each witness keeps a way back of its own.
                is_alone = not any(_key(parent) in seen for parent in parents)
                for parent in parents:
                    known_as = _known(parent, seen, known, alone if is_alone else others)
                    is_alone = False
                    node.parents.append(known_as)
                    if not known_as.visited:
                        known_as.visited = True
                        pushed += 1
                        heappush(pending, (-known_as.order, pushed, known_as))
        return sorted(dict.fromkeys([*seen.values(), *starts]), key=lambda n: n.order)

    def _parents(self, node: Node, read: Read) -> list[Node]:
        """The non-finite elements of what was read."""
        assert node.record is not None
        parents = []
        for index, value in _nonfinite_in(node.record, read):
            parent = self.locate(read.ref, index, node.record.index)
            parent.value = value
            if value is None and node.value is not None and not cmath.isnan(node.value):
                parent.value = node.value  # an infinity was an infinity before
            parents.append(parent)
        return parents


def _most(visited: int) -> tuple[int, int]:
    """How many elements of one result are followed: fewer on a long way, so that what is visited
    stays within a few for each operation."""
    if visited < MANY:
        return MOST_APART, WITNESSES
    return (WITNESSES, 2) if visited < 4 * MANY else (2, 1)


def path_between(start: Node, origin: Node) -> list[Node]:
    """Nodes from the origin to the sink."""
    path = [start]
    node = start
    while node is not origin and node.parents:
        node = next((p for p in node.parents if p is origin or p.origin is origin), node.parents[0])
        path.append(node)
    return path[::-1]


def _known(node: Node, seen: dict[Any, Node], known: dict[Any, list[Node]], most: int) -> Node:
    """The node for this element; where a result has many bad elements, some stand for all."""
    key = _key(node)
    if key in seen:
        return seen[key]
    is_nan = node.value is not None and cmath.isnan(node.value)
    others = known.setdefault((*key[:-1], node.index is None, is_nan), [])
    if len(others) >= most and node.record is not None:
        return others[len(seen) % len(others)]
    others.append(node)
    seen[key] = node
    return node


def _key(node: Node) -> Any:
    if node.record is None:
        return (id(node.ref.entry), node.index)
    return (node.record.index, node.k, node.index)


def _nonfinite_in(record: Record, read: Read) -> list[Element]:
    """Non-finite elements in what was read: the first, and some spread over the rest, since
    each may have another origin. An index of None: the values are gone, but there was one."""
    if not (read.ref.dtype.is_floating_point or read.ref.dtype.is_complex):
        return []
    tensor = value_before(record, read)
    if tensor is None:
        tainted = any(ref.entry is read.ref.entry for ref in record.tainted_in or ())
        return [(None, None)] if tainted else []
    part = ordinary(tensor[read.selection])
    if part.numel() == 1:  # nearly always
        value = part.item()
        return [] if cmath.isfinite(value) else [(read.within((0,) * part.dim()), value)]
    inner = nonfinite_indices(part, WITNESSES)
    return [(read.within(i), part[i].item()) for i in inner]
