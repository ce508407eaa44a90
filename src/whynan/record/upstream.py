"""How a finite operand came to be: its maker, that one's deciding operand, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from whynan.model import ITSELF, Operand, OpRecord
from whynan.record.ancestry import Ancestry, Node
from whynan.record.deciding import deciding, extreme
from whynan.record.freeze import Freezer
from whynan.record.reads import Read, value_before
from whynan.record.records import Record, inside_of, record_refs
from whynan.record.relations import reads
from whynan.record.storages import Index

UPSTREAM_DEPTH = 8
ZERO_TRAIL = 256  # a product that has run down to 0 stays there
BINS = frozenset({"bincount", "histc"})


class Upstream:
    """Follows an operand back for as long as one operand explains another."""

    def __init__(self, freezer: Freezer, ancestry: Ancestry) -> None:
        self.freezer = freezer
        self.ancestry = ancestry

    def of(self, record: Record, read: Read, operand: Operand) -> tuple[OpRecord, ...]:
        """The operations that the operand's value goes back to, nearest first."""
        found: list[OpRecord] = []
        while len(found) < ZERO_TRAIL:
            if len(found) >= UPSTREAM_DEPTH and found[-1].value != 0:
                break
            node = self.maker(record, read, operand)
            if node is None or node.record is None:
                break
            record = node.record
            if record.info.allocates or _is_seed(record):
                break
            bare = self.freezer.bare(record, node.k, node.index)
            if bare.value is None and bare.outputs:  # overwritten since: its reader saw it
                bare = replace(bare, outputs=(replace(bare.outputs[0], value=operand.value),))
            operands = self.freezer.operands(record, node.k, node.index)
            if bare.name in BINS and bare.value == 0:
                operands = []  # nothing fell into that bin
            if bare.name == "sub" and bare.value == 0:
                operands = self._with_makers(record, operands)
            slope = record.derived and not self._carries_gradient(record)
            found.append(replace(bare, inputs=tuple(o for _, o in operands), is_slope=slope))
            chosen = deciding(found[-1], operands)
            if chosen is None:
                break
            read, operand = chosen
        return tuple(found)

    def makers_of(self, node: Node) -> Iterator[tuple[Operand, Node]]:
        """The operands of an operation, each with what made the element that decides."""
        if node.record is None:
            return
        for read, operand in self.freezer.operands(node.record, node.k, node.index):
            made = self.maker(node.record, read, operand)
            if made is not None:
                yield operand, made

    def frozen(self, node: Node) -> OpRecord:
        """One operation with its operands; of a difference, what made these."""
        assert node.record is not None
        operands = self.freezer.operands(node.record, node.k, node.index)
        inputs = tuple(self._with_maker(node.record, r, o) for r, o in operands)
        return replace(self.freezer.bare(node.record, node.k, node.index), inputs=inputs)

    def maker(self, record: Record, read: Read, operand: Operand) -> Node | None:
        """Who made the element that decides; None where none does."""
        if operand.index is None:
            return None
        return self.ancestry.locate(read.ref, operand.index, record.index)

    def reader_of_garbage(
        self, record: Record, k: int, index: Index | None
    ) -> tuple[Record, int, Index | None] | None:
        """The operation upstream that read memory nobody had written, if one did."""
        for read in reads(record, k, index):
            if not read.ref.dtype.is_floating_point:
                continue
            reader, ref, element, before = (record, k, index), read.ref, read.element, record.index
            tensor = value_before(record, read)
            if element is None and tensor is not None:
                element = extreme(tensor[read.selection], read)
            for _ in range(UPSTREAM_DEPTH):
                node = self.ancestry.locate(ref, element, before) if element is not None else None
                if node is None or node.record is None:
                    break
                if node.record.info.allocates:
                    return reader
                maker = node.record
                every = self.freezer.operands(maker, node.k, node.index)
                operands = [(r, o) for r, o in every if r.ref.dtype.is_floating_point]
                chosen = deciding(self.freezer.bare(maker, node.k, node.index), operands)
                if chosen is None:
                    break
                reader = (maker, node.k, node.index)
                ref, element, before = chosen[0].ref, chosen[1].index, maker.index
        return None

    def _with_makers(self, record: Record, operands: list[tuple[Read, Operand]]) -> list[tuple[Read, Operand]]:  # fmt: skip
        """Of a difference that is 0: what made its sides, or that they are the same element."""
        nodes = [self.maker(record, r, o) for r, o in operands]
        places = {(id(n.ref.entry), n.index, n.record and n.record.index) for n in nodes if n is not None and n.index}  # fmt: skip
        if len(nodes) == 2 and all(n is not None and n.index for n in nodes) and len(places) == 1:
            return [(r, replace(o, source=ITSELF)) for r, o in operands]
        return [(r, self._with_maker(record, r, o)) for r, o in operands]

    def _with_maker(self, record: Record, read: Read, operand: Operand) -> Operand:
        """Equal minuend and subtrahend: what made them tells a constant from a cancellation."""
        node = self.maker(record, read, operand)
        if node is None or node.record is None:
            return operand
        return replace(operand, source=f"result of {node.record.info.base}")

    def _carries_gradient(self, record: Record) -> bool:
        """Whether a gradient went into it: what another node made, or what the pass began with."""
        pending, seen = [record], {record.index}
        while pending and len(seen) < ZERO_TRAIL:
            current = pending.pop()
            for ref in record_refs(current):
                before = (i for i, _ in reversed(ref.entry.writers) if i < current.index)
                maker = self.freezer.tracer.records.get(next(before, -1))
                if maker is None:
                    continue
                if _is_seed(maker) or (maker.node is not None and maker.node != record.node):
                    return True
                if maker.derived and maker.index not in seen:
                    seen.add(maker.index)
                    pending.append(maker)
        return bool(pending)


def _is_seed(record: Record) -> bool:
    """The 1 that a backward pass begins with: nobody wrote it."""
    inside = inside_of(record) or ""
    return record.info.base == "ones_like" and inside.endswith(("backward", "grad"))
