"""From a live record to a frozen `OpRecord`: statistics and witness values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from whynan.model import (
    FROM_BEFORE,
    FROM_GRADIENT,
    FROM_LOADER,
    Operand,
    OpRecord,
    Scalar,
    TensorStats,
)
from whynan.record.ancestry import Node
from whynan.record.deciding import elements
from whynan.record.exponents import exponents_of
from whynan.record.modules import ModuleNames, path_of
from whynan.record.phase import phase_of
from whynan.record.reads import Read, value_after, value_before
from whynan.record.records import Record, inside_of
from whynan.record.relations import is_untouched, reads
from whynan.record.storages import Index, Ref
from whynan.record.tracer import Tracer
from whynan.seam.sites import Frames, site_of
from whynan.seam.stats import dead_columns, first_nonfinite, stats_of


class Freezer:
    """Freezes single records, without what came before them."""

    def __init__(self, tracer: Tracer, names: ModuleNames) -> None:
        self.tracer = tracer
        self.names = names

    def light(self, node: Node) -> OpRecord:
        """One stage of the path: the operation and the witness's value."""
        if node.record is None:
            return self.entry(node, [])
        return self.bare(node.record, node.k, node.index, value=node.value)

    def bare(self, record: Record, k: int, index: Index | None, value: Any = None) -> OpRecord:
        """One operation without its operands."""
        outputs: tuple[Operand, ...] = ()
        if record.outs:
            tensor = value_after(record, k)
            stats = None if tensor is None else stats_of(tensor)
            if value is None and tensor is not None and index is not None:
                value = tensor[index].item()
            first = None if tensor is None else first_nonfinite(tensor, prefer_nan=False)
            outputs = (replace(_output(record, k, stats, index, value), first=first),)
            outputs += _companions(record, k, index)
        names = record.info.arg_names
        scalars = {names[i]: scalar_of(a) for i, a in enumerate(record.args) if _is_scalar(a)}
        scalars |= {name: scalar_of(a) for name, a in record.kwargs.items() if _is_scalar(a)}
        return OpRecord(
            index=record.index,
            op=record.info.name,
            phase=phase_of(record, self.tracer),
            step=record.step,
            site=site_of(record.frames) if record.frames else None,
            outputs=outputs,
            scalars=scalars,
            module=path_of(record.module),
            inside=inside_of(record),
            node=record.node,
            derived=record.derived,
            untouched=bool(record.outs) and is_untouched(record, k, index),
        )

    def entry(self, node: Node, path: list[Record | None]) -> OpRecord:
        """A value that nothing recorded made: a parameter, a buffer, data."""
        ref = node.ref
        entry = ref.entry
        reader = next((r for r in path[1:] if r is not None), None)
        frames: Frames | None = entry.entered or (reader.frames if reader else None)
        name = self.names.name_of_storage(entry)
        outside = FROM_LOADER if entry.entered is not None else "data from outside torch"
        if entry.from_grad:
            outside = FROM_GRADIENT
        source = " ".join(name) if name else outside
        tensor = ref.tensor()
        operand = Operand(
            role="value",
            stats=None if tensor is None else stats_of(tensor),
            index=node.index,
            first=None if tensor is None else first_nonfinite(tensor, prefer_nan=False),
            columns=dead_columns(tensor),
            value=real(node.value),
            source=source,
        )
        return OpRecord(
            index=-1,
            op="entry",
            phase="init" if name else "data",
            step=reader.step if reader else self.tracer.step,
            site=site_of(frames) if frames else None,
            inputs=(operand,),
            outputs=(operand,),
            module=None,
        )

    def operands(
        self, record: Record, k: int, index: Index | None, *, spread: bool = False
    ) -> list[tuple[Read, Operand]]:
        """What the witness was computed from; with `spread`, by magnitudes as well."""
        found = reads(record, k, index)
        chosen = elements(record, k, index, found)
        return [
            (read, self._operand(record, read, element, spread=spread))
            for read, element in zip(found, chosen, strict=True)
        ]

    def _operand(self, record: Record, read: Read, index: Index | None, *, spread: bool) -> Operand:
        tensor = value_before(record, read)
        if tensor is None:
            return Operand(role=read.role, stats=None, source=self._source(read.ref))
        value = real(tensor[index].item()) if index is not None and tensor.numel() else None
        stats = stats_of(tensor)
        return Operand(
            role=read.role,
            stats=replace(stats, exponents=exponents_of(tensor)) if spread else stats,
            index=index,
            value=value,
            slice_stats=stats_of(tensor[read.selection]) if read.element is None else None,
            source=self._source(read.ref, record),
        )

    def _source(self, ref: Ref, record: Record | None = None) -> str | None:
        entry = ref.entry
        name = self.names.name_of_storage(entry)
        if name:
            return " ".join(name)
        if entry.entered is not None:
            return FROM_LOADER
        made = [i for i, _ in entry.writers if record is None or i < record.index]
        if made:
            return None
        return "leaf tensor" if entry.leaf else FROM_BEFORE


def _output(
    record: Record, k: int, stats: TensorStats | None, index: Index | None, value: Any
) -> Operand:
    dtype = str(record.outs[k].dtype).removeprefix("torch.")
    return Operand(role=f"output {k}", stats=stats, index=index, dtype=dtype, value=real(value))


def _companions(record: Record, k: int, index: Index | None) -> tuple[Operand, ...]:
    """Other outputs without which this one says little: of a sign, the logarithm."""
    if index is None or record.info.row.name != "slogdet":
        return ()
    found = []
    for other, ref in enumerate(record.outs):
        tensor = value_after(record, other)
        if other != k and tensor is not None and ref.shape == record.outs[k].shape:
            value = tensor[index].item()
            found.append(_output(record, other, stats_of(tensor), index, value))
    return tuple(found)


def _is_scalar(arg: Any) -> bool:
    return isinstance(arg, (bool, int, float, str, torch.dtype)) or (
        isinstance(arg, (list, tuple)) and bool(arg) and all(isinstance(a, int) for a in arg)
    )


def scalar_of(arg: Any) -> Scalar:
    """A non-tensor argument as something a report can hold."""
    if isinstance(arg, (bool, int, float, str)):
        return arg
    return str(arg).removeprefix("torch.")


def real(value: Any) -> float | None:
    """A number that JSON can order: of a complex one, the non-finite part or the magnitude."""
    if value is None:
        return None
    if isinstance(value, complex):
        return value.real if value.real - value.real != 0 else abs(value)
    return float(value)
