"""The origin in full: its operands with their histories, and what sort of origin it is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from whynan.model import Operand, OpRecord, Origin
from whynan.record.ancestry import Node
from whynan.record.freeze import Freezer, real
from whynan.record.opinions import opinions_of, untried
from whynan.record.phase import phase_of
from whynan.record.reads import Read, value_after, value_before
from whynan.record.recompute import in_float64
from whynan.record.records import Record, comes_in, is_torchs_own
from whynan.record.relations import reads
from whynan.record.storages import Index
from whynan.record.upstream import Upstream
from whynan.seam.stats import dead_columns, eigenvalues_of, first_nonfinite
from whynan.source.meant import LITERAL, mentions_nonfinite
from whynan.source.positions import written_at

MOST_S = 10.0  # in which operations are computed in other ways, together


class Origins:
    """Freezes what a rule is to see whole."""

    def __init__(self, freezer: Freezer, upstream: Upstream) -> None:
        self.freezer = freezer
        self.upstream = upstream
        self._spent_s = 0.0  # on opinions

    def origin(self, node: Node, path: list[Record | None]) -> tuple[OpRecord, Origin]:
        """The origin in full, and what sort of origin it is."""
        record = node.record
        if record is None:
            return self.freezer.entry(node, path), "entry"
        frozen = replace(
            self.full(record, node.k, node.index, node.value),
            phase=phase_of(record, self.freezer.tracer, path),
        )
        if comes_in(record):
            if frozen.site is not None and LITERAL.search(written_at(frozen.site)):
                return frozen, "literal"
            return replace(frozen, phase="data"), "entry"
        if node.status == "intended" and "fills" in record.info.row.does:
            return frozen, "literal" if _is_written(frozen) else "number"
        if any(p.status == "uninitialised" for p in node.parents):
            return self._with_allocations(frozen, record, node), "uninitialised"
        if node.value is not None and not node.parents and _is_handed_in(frozen, node.value):
            if is_torchs_own(record):
                return frozen, "operation"
            return frozen, "literal" if _is_written(frozen) else "number"
        return self._with_opinions(frozen, record, node), "operation"

    def _with_opinions(self, frozen: OpRecord, record: Record, node: Node) -> OpRecord:
        """What other implementations make of the same operands; seldom, for it takes time."""
        if frozen.opinions is not None:
            return frozen
        if self._spent_s > MOST_S:
            why = f"other operations have taken the {MOST_S:.0f} s that there are for it"
            return replace(frozen, opinions=untried(record, why))
        begun_s = time.monotonic()
        try:
            return replace(frozen, opinions=opinions_of(record, node.k, node.index))
        except Exception:  # the origin is known without them
            return frozen
        finally:
            self._spent_s += time.monotonic() - begun_s

    def full(self, record: Record, k: int, index: Index | None, value: Any = None) -> OpRecord:
        """Everything about one operation, with its operands' histories."""
        alive = record.info.entry and value_after(record, k) is not None
        if record.frozen is not None and not alive:
            return record.frozen
        if index is None and record.outs:
            tensor = value_after(record, k)
            index = first_nonfinite(tensor) if tensor is not None else None
        bare = self.freezer.bare(record, k, index, value)
        if comes_in(record):  # what comes in is what comes out
            columns = dead_columns(value_after(record, k))
            given = tuple(replace(o, role="value", columns=columns) for o in bare.outputs)
            return replace(bare, inputs=given)
        operands = self.freezer.operands(record, k, index, spread=True)
        return replace(
            bare,
            inputs=tuple(self._with_history(record, r, o) for r, o in operands),
            exact=_exact(record, k, index),
        )

    def _with_history(self, record: Record, read: Read, operand: Operand) -> Operand:
        if "singular_matrix" in record.info.row.fails:
            operand = replace(operand, eigenvalues=eigenvalues_of(value_before(record, read)))
        selects = record.info.base == "where" and is_torchs_own(record)
        if read.ref.dtype is torch.bool and not selects:
            return operand
        return replace(operand, upstream=self.upstream.of(record, read, operand))

    def _with_allocations(self, frozen: OpRecord, record: Record, node: Node) -> OpRecord:
        """Of each operand that nothing has written: where its memory was asked for."""
        found = reads(record, node.k, node.index)
        if len(found) != len(frozen.inputs):
            return frozen
        inputs = []
        for read, operand in zip(found, frozen.inputs, strict=True):
            made = self.upstream.maker(record, read, operand)
            if made is not None and made.record is not None and made.record.info.allocates:
                bare = self.freezer.bare(made.record, made.k, made.index, operand.value)
                operand = replace(operand, upstream=(bare,))
            inputs.append(operand)
        return replace(frozen, inputs=tuple(inputs))


def _exact(record: Record, k: int, index: Index | None) -> float | None:
    """The witness in float64: tells an overflow from an undefined result."""
    outs = in_float64(record) if index is not None else None
    if outs is None or index is None or k >= len(outs):
        return None
    if outs[k].shape != record.outs[k].shape:
        return None
    return real(outs[k][index].item())


def _is_handed_in(op: OpRecord, value: float | complex) -> bool:
    """Whether a number of that kind, NaN or infinite, was among the arguments; of an update, any:
    an infinite learning rate times a gradient of 0 is NaN."""
    numbers = [v for v in op.scalars.values() if isinstance(v, float) and v - v != 0]
    if op.phase == "optimizer":
        return bool(numbers)
    return any((v != v) == (value != value) for v in numbers)


def _is_written(frozen: OpRecord) -> bool:
    return frozen.site is not None and mentions_nonfinite(frozen.site)
