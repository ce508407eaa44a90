"""Walks back from a harmed sink to the operation that made the first non-finite value."""

from __future__ import annotations

import cmath
import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal

import torch

from whynan.model import Evidence, OpRecord, Scalar, Sink
from whynan.record.freeze import Freezer, real
from whynan.record.modules import ModuleNames
from whynan.record.reads import Read, value_after, value_before
from whynan.record.records import (
    Record,
    is_torchs_own,
    nonfinite_scalars,
    record_refs,
    writes_literal,
)
from whynan.record.relations import reads
from whynan.record.storages import Index, Ref
from whynan.record.tracer import Tracer
from whynan.seam.hush import hushed
from whynan.seam.private import has_storage
from whynan.seam.sites import Frames, site_of
from whynan.seam.stats import first_nonfinite, nonfinite_indices, ordinary
from whynan.source.meant import LITERAL, names_nonfinite

MAX_NODES = 20_000
GRADIENT_OF = "gradient of "
TURN = 3  # operations of a derivative formula, from the value that it reads to its result
WITNESSES = 6  # of one result
MOST_APART = 24  # where they lead to different elements

Element = tuple[Index | None, float | complex | None]
Status = Literal["intended", "uninitialised", "computed"]


@dataclass(slots=True)
class Harm:
    """A non-finite value at a sink, before anyone knows where it came from."""

    sink: Sink
    subject: str
    tensors: list[torch.Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the tensors, where they differ
    frames: Frames | None = None
    record: Record | None = None  # the operation that raised, or that absorbed an overflow
    known: Evidence | None = None  # where it began, when that was seen earlier
    message: str | None = None
    effect: str | None = None
    parameter: str | None = None
    hyper: dict[str, Scalar] = field(default_factory=dict)
    step: int = 0
    is_buffer: bool = False
    is_state: bool = False  # of an optimizer; it may start at an infinity

    @property
    def matters(self) -> bool:
        """Training stands on it; a mask that is printed, saved or kept in a buffer is no harm."""
        trains = self.sink in ("loss", "gradient", "parameter")
        return trains and not self.is_buffer and not self.is_state


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


class Slicer:
    """Turns a `Harm` into `Evidence`, or into None when every infinity was meant."""

    def __init__(self, tracer: Tracer, names: ModuleNames) -> None:
        self.tracer = tracer
        self.freezer = Freezer(tracer, names, self.locate)

    def freeze(self, record: Record) -> None:
        """Note what explains it: it may do harm long after its operands are gone."""
        with torch.no_grad(), hushed():
            record.frozen = self.freezer.full(record, record.bad[0], None)

    def evidence(self, harm: Harm) -> Evidence | None:
        """Walk back from the sink; all of it happens while the values are still there."""
        if harm.known is not None:
            return replace(
                harm.known,
                sink=harm.sink,
                subject=harm.subject,
                sink_site=site_of(harm.frames) if harm.frames else None,
                sink_value=None,
                effect=harm.effect,
                hyper=harm.hyper,
            )
        with torch.no_grad(), hushed():  # what is recomputed was already warned about
            starts = self._starts(harm)
            if not starts:
                return self._raised(harm) if harm.sink == "exception" else None
            for start in starts:
                for node in self._explore(start):
                    self._judge(node, trains=harm.matters)
            found = [(s.origin.rank, s, s.origin) for s in starts if s.origin is not None]
            if found:
                _, start, origin = min(found, key=lambda item: item[0])
                if not harm.matters and self._only_carried(start, origin):
                    return None
                return self._describe(harm, start, origin)
            # A parameter may hold -inf for good: a class that is ruled out. The loss tells.
            is_kept = harm.sink == "parameter"
            return self._intended(harm, starts[0]) if harm.matters and not is_kept else None

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Whether what stands there is a number of the program's own, as far as is recorded."""
        entry = self.tracer.entry_of(tensor) if has_storage(tensor) else None
        record = self.tracer.records.get(entry.writers[-1][0]) if entry and entry.writers else None
        if record is None:
            return False
        return writes_literal(record) or (record.info.entry and _is_named(record))

    # ---- walking back -------------------------------------------------------------------

    def locate(self, ref: Ref, index: Index | None, before: int) -> Node:
        """Who made this element, of the writers older than `before`."""
        position = None if index is None else ref.position(index)
        for i, written in reversed(ref.entry.writers):
            record = self.tracer.records.get(i)
            if i >= before or record is None:
                continue
            inner = None if position is None else written.index_at(position)
            if position is not None and inner is None:
                continue
            k = next((k for k, out in enumerate(record.outs) if out is written), 0)
            if position is None and ref.entry.tainted and k not in record.bad:
                continue
            return Node(record, k, inner, written)
        return Node(None, 0, index, ref)

    def _starts(self, harm: Harm) -> list[Node]:
        """The harmed elements, one for each tensor."""
        found = []
        for tensor, name in zip_longest(harm.tensors, harm.names):
            node = self._start_at(tensor)
            if node is not None:
                node.name = name
                found.append(node)
        if not found and harm.record is not None:
            for read in reads(harm.record, 0, None):
                for index, value in self._nonfinite_in(harm.record, read):
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

    def _explore(self, start: Node) -> list[Node]:
        """All non-finite ancestors of the sink, oldest first."""
        seen: dict[Any, Node] = {}
        known: dict[Any, list[Node]] = {}  # by the result they are elements of
        pending = deque([start])  # nearest first: each of the first witnesses gets its way back
        seen[self._key(start)] = start
        while pending and len(seen) < MAX_NODES:
            node = pending.popleft()
            if node.record is None or node.record.info.entry:
                continue
            for read in reads(node.record, node.k, node.index):
                parents = []
                for index, value in self._nonfinite_in(node.record, read):
                    parent = self.locate(read.ref, index, node.record.index)
                    parent.value = value
                    if value is None and node.value is not None and not _is_nan(node.value):
                        parent.value = node.value  # an infinity was an infinity before
                    parents.append(parent)
                # Another row may have gone bad earlier: each witness keeps a way back of its own.
                is_alone = not any(self._key(parent) in seen for parent in parents)
                for parent in parents:
                    known_as = self._known(
                        parent, seen, known, MOST_APART if is_alone else WITNESSES
                    )
                    is_alone = False
                    node.parents.append(known_as)
                    if not known_as.visited:
                        known_as.visited = True
                        pending.append(known_as)
        return sorted(seen.values(), key=lambda n: n.order)

    def _known(
        self, node: Node, seen: dict[Any, Node], known: dict[Any, list[Node]], most: int
    ) -> Node:
        """The node for this element; where a result has many bad elements, some stand for all."""
        key = self._key(node)
        if key in seen:
            return seen[key]
        is_nan = node.value is not None and _is_nan(node.value)
        others = known.setdefault((*key[:-1], node.index is None, is_nan), [])
        if len(others) >= most and node.record is not None:
            return others[len(seen) % len(others)]
        others.append(node)
        seen[key] = node
        return node

    @staticmethod
    def _key(node: Node) -> Any:
        if node.record is None:
            return (id(node.ref.entry), node.index)
        return (node.record.index, node.k, node.index)

    def _nonfinite_in(self, record: Record, read: Read) -> list[Element]:
        """Non-finite elements in what was read: the first, and some spread over the rest, since
        each may have another origin. An index of None: the values are gone, but there was one."""
        if not (read.ref.dtype.is_floating_point or read.ref.dtype.is_complex):
            return []
        tensor = value_before(record, read)
        if tensor is None:
            tainted = any(ref.entry is read.ref.entry for ref in record.tainted_in or ())
            return [(None, None)] if tainted else []
        part = ordinary(tensor[read.selection])
        found: list[Element] = []
        for inner in nonfinite_indices(part, WITNESSES):
            rest = iter(inner)
            index = tuple(
                i if isinstance(i, int) else (i.start or 0) + next(rest) for i in read.selection
            )
            found.append((index, part[inner].item()))
        return found

    # ---- judging ------------------------------------------------------------------------

    def _judge(self, node: Node, *, trains: bool) -> None:
        """Computed, intended or uninitialised, given the verdict on what it came from."""
        record = node.record
        if record is None:
            node.status, node.origin = "computed", node
            return
        if record.info.allocates:
            node.status = "uninitialised"
            return
        if record.info.entry:
            meant = self._is_literal_call(record)
            # `scores[0] = -inf` is a mask; inf may be bad data that is trained with.
            if not meant and (not trains or self._value(node) == -math.inf):
                meant = _is_named(record)
            self._literal(node, meant=meant)
            return
        computed = [p for p in node.parents if p.status == "computed"]
        if computed:
            node.status = "computed"
            origins = [p.origin for p in computed if p.origin is not None]
            # Where the element is known as well, that says more.
            node.origin = min(origins, key=lambda n: n.rank)
            return
        if any(p.status == "uninitialised" for p in node.parents):
            node.status, node.origin = "computed", node
            return
        if not node.parents:
            written = nonfinite_scalars(record)
            if written and "fills" in record.info.row.does:
                node.value = written[0]
                if is_torchs_own(record):  # what selects it is the origin, if that is another one
                    if record_refs(record):
                        node.status, node.origin = "computed", node
                    return
                self._literal(node, meant=True)
                return
            # No update is meant to be infinite: that is a learning rate, or a decay times one.
            if not written or record.in_optimizer:
                node.status, node.origin = "computed", node
                return
        value = self._value(node)
        if value is None or _is_nan(value):  # an intended infinity was turned into NaN here
            node.status, node.origin = "computed", node

    def _literal(self, node: Node, *, meant: bool) -> None:
        value = self._value(node)
        if not meant or value is None or _is_nan(value):
            node.status, node.origin = "computed", node

    def _value(self, node: Node) -> float | complex | None:
        if node.value is None and node.record is not None:
            tensor = value_after(node.record, node.k)
            if tensor is not None:
                index = node.index if node.index is not None else first_nonfinite(tensor)
                if index is not None:
                    node.value = tensor[index].item()
        return node.value

    @staticmethod
    def _is_literal_call(record: Record) -> bool:
        """`torch.tensor(float("inf"))` is meant; `torch.from_numpy(table)` is data."""
        if record.frames is None:
            return False
        site = site_of(record.frames)
        return bool(LITERAL.search(site.expression or site.source))

    # ---- describing ---------------------------------------------------------------------

    def _intended(self, harm: Harm, start: Node) -> Evidence | None:
        """Every infinity was written on purpose. That is harm only where training stands on it."""
        node, meant = start, start
        while node.parents:
            fails = node.record.info.row.fails if node.record is not None else ()
            if "log_nonpositive" in fails:
                meant = node
            node = node.parents[0]
        if meant is start and start.record is not None and node.record is not None:
            meant = node
        return self._describe(harm, start, meant)

    def _stage(self, node: Node, *, in_full: bool) -> OpRecord:
        record = node.record
        if in_full and record is not None and record.derived:
            return self.freezer.full(record, node.k, node.index, node.value)
        return self.freezer.light(node)

    def _describe(self, harm: Harm, start: Node, origin: Node) -> Evidence:
        path = self._path(start, origin)
        if origin.record is not None and origin.status == "computed" and not origin.parents:
            garbage = self.freezer.reader_of_garbage(origin.record, origin.k, origin.index)
            if garbage is not None and garbage[0] is not origin.record:
                record, k, index = garbage
                origin = Node(record, k, index, record.outs[k])
                origin.parents = [unwritten := Node(None, 0, None, record.outs[k])]
                unwritten.status = "uninitialised"
                path.insert(0, origin)
        frozen, kind = self.freezer.origin(origin, [p.record for p in path])
        # What a forward value meets on its way back tells what had dropped it.
        turn = TURN if path and path[0].record is not None and path[0].record.node is None else 0
        steps = [self._stage(n, in_full=i < turn) for i, n in enumerate(path[1:])]
        if harm.record is not None and harm.sink != "exception":  # it absorbed the value
            steps.append(self.freezer.light(Node(harm.record, 0, None, harm.record.outs[0])))
        if harm.sink == "parameter" and not harm.is_buffer and self._after_backward(origin):
            frozen = replace(frozen, phase="optimizer")
        incomplete = None
        if any(n.index is None for n in path if n.record is not None):
            incomplete = "which elements led there: values on the way were no longer in memory"
        return Evidence(
            sink=harm.sink,
            subject=start.name or harm.subject,
            step=harm.step,
            origin=frozen,
            origin_kind=kind,
            path=tuple(steps),
            sink_site=site_of(harm.frames) if harm.frames else None,
            sink_value=real(self._value(start)),
            effect=harm.effect,
            message=harm.message,
            parameter=harm.parameter and (start.name or harm.parameter).removeprefix(GRADIENT_OF),
            hyper=harm.hyper,
            incomplete=incomplete,
        )

    def _after_backward(self, origin: Node) -> bool:
        """Between the backward pass and the parameter: part of an update written by hand."""
        record = origin.record
        return (
            record is not None
            and record.node is None
            and record.index >= self.tracer.local.differentiated_at >= 0
        )

    def _only_carried(self, start: Node, origin: Node) -> bool:
        """An infinity that came in from a file or an array and was only copied since; or a NaN
        that the program names where it makes it: it reads back its own marker."""
        record, value = origin.record, self._value(start)
        if value is None or (record is not None and not record.info.entry):
            return False
        if _is_nan(value) and not (record is not None and _is_named(record)):
            return False
        return all(
            n.record is None or "copies" in n.record.info.row.does or n.record.info.entry
            for n in self._path(start, origin)
        )

    @staticmethod
    def _path(start: Node, origin: Node) -> list[Node]:
        """Nodes from the origin to the sink."""
        path = [start]
        node = start
        while node is not origin and node.parents:
            node = next(
                (p for p in node.parents if p is origin or p.origin is origin), node.parents[0]
            )
            path.append(node)
        return path[::-1]

    def _raised(self, harm: Harm) -> Evidence | None:
        """An operation refused finite input (a singular matrix, a negative probability)."""
        record = harm.record
        if record is None:
            return None
        frozen: OpRecord = self.freezer.full(record, 0, None)
        return Evidence(
            sink="exception",
            subject=harm.subject,
            step=harm.step,
            origin=frozen,
            origin_kind="raised",
            sink_site=site_of(harm.frames) if harm.frames else frozen.site,
            message=harm.message,
        )


def _is_nan(value: float | complex) -> bool:
    return cmath.isnan(value)


def _is_named(record: Record) -> bool:
    """Whether the value stands in the source where it comes in, itself or by a name for it."""
    return record.frames is not None and names_nonfinite(site_of(record.frames))
