"""What is odd about the one row of the data that leads to an origin: a value far beyond all others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from whynan.model import Evidence, Oddity, Sample
from whynan.record.oddities import MAX_VALUES
from whynan.record.records import record_refs
from whynan.seam.devices import double
from whynan.seam.private import has_storage, storage_id
from whynan.seam.sites import program_frames
from whynan.seam.stats import has_nonfinite
from whynan.seam.variables import locals_of

if TYPE_CHECKING:
    from whynan.record.recorder import Recorder

BEYOND = 3.0  # times as far from the median as the farthest of the others
FEWEST = 8  # rows, of which one can be said to be odd
MOST = 16  # tables that are looked at
MAX_COLUMNS = 4_096


def odd_cell(evidence: Evidence, recorder: Recorder, sample: Sample | None) -> Oddity | None:
    """The value of that row that lies farthest outside its column."""
    row, size = _row_of(evidence, sample)
    if row is None:
        return None
    found = (o for t, given in _tables(recorder, size) if (o := _told(t, row, given=given)))
    return max(found, key=lambda o: abs(o.value) / max(o.typical, 1e-12), default=None)


def place_in_table(tensor: torch.Tensor) -> tuple[str, int, int] | None:
    """Of some rows one after the other: what the program calls the table, the first row, its length."""
    if not tensor.dim() or not has_storage(tensor) or not tensor.stride(0):
        return None
    wanted, row = storage_id(tensor), (tensor.shape[1:], tensor.stride())
    found: tuple[str, int, int] | None = None
    for frame in program_frames(sys._getframe()):
        for name, value in locals_of(frame).items():
            if type(value) is not torch.Tensor or not has_storage(value) or not value.dim():
                continue
            alike = len(value) >= len(tensor) and (value.shape[1:], value.stride()) == row
            ahead = tensor.storage_offset() - value.storage_offset() if alike else -1
            is_in = ahead >= 0 and ahead % tensor.stride(0) == 0 and storage_id(value) == wanted
            if is_in and (found is None or len(value) > found[2]):
                found = name, ahead // tensor.stride(0), len(value)
    return found


def row_of_operand(evidence: Evidence, recorder: Recorder) -> Sample | None:
    """Of a slice of a table that the origin was given: the one row of it that is bad afterwards."""
    record = recorder.tracer.records.get(evidence.origin.index)
    out = evidence.origin.outputs[0] if evidence.origin.outputs else None
    if record is None or record.derived or out is None or out.stats is None or not out.first:
        return None
    size = out.stats.shape[0]
    for tensor in (t for ref in record_refs(record) if (t := ref.tensor()) is not None):
        if not tensor.dim() or len(tensor) != size or tensor.requires_grad or size < 2:
            continue
        is_made = has_storage(tensor) and storage_id(tensor) in _made(recorder)
        place = None if is_made else place_in_table(tensor)
        if place is not None and place[2] > size and out.stats.nonfinite * size <= out.stats.count:
            name, first, _ = place
            row = out.first[0]
            return Sample(index=row, size=size, dataset_index=first + row, table=f"`{name}`")
    return None


def _row_of(evidence: Evidence, sample: Sample | None) -> tuple[int | None, int]:
    """The batch's, or that of a table which the whole program computes with."""
    if sample is not None:
        alone = sample.bad == 1 and not sample.inferred and sample.size >= FEWEST
        return (sample.index if alone else None), sample.size
    origin = evidence.origin
    out = origin.outputs[0] if origin.outputs else None
    if out is None or out.stats is None or not out.stats.shape or not out.first:
        return None, 0
    size = out.stats.shape[0]
    few = out.stats.nonfinite * size <= out.stats.count  # as many as one row has
    return (out.first[0] if few and size >= FEWEST else None), size


def _tables(recorder: Recorder, size: int) -> Iterator[tuple[torch.Tensor, bool]]:
    """Tensors of as many rows that came from outside the step; whether they were given to a model."""
    seen, made, learnt = set[int](), _made(recorder), _learnt(recorder)
    given = [*recorder.batches.inputs, *(t for _, t in recorder.batches.columns())]
    for i, tensor in enumerate((*given, *_from_outside(recorder))):
        fits = tensor.dim() in (1, 2) and len(tensor) == size and tensor.is_floating_point()
        if not fits or id(tensor) in seen or tensor.requires_grad or len(seen) >= MOST:
            continue
        if not has_storage(tensor) or storage_id(tensor) in (learnt if i < len(given) else made):
            continue
        seen.add(id(tensor))
        if tensor.numel() <= MAX_VALUES and tensor[0].numel() <= MAX_COLUMNS:
            yield tensor, i < len(given)


def _from_outside(recorder: Recorder) -> Iterator[torch.Tensor]:
    tracer = recorder.tracer
    for record in tracer.records.values():
        if record.step != tracer.step or record.derived:
            continue
        for ref in record_refs(record):
            tensor = ref.tensor()
            if tensor is not None:
                yield tensor


def _made(recorder: Recorder) -> set[int]:
    """The storages that were computed in this very step; what a program prepared before it is data."""
    records = recorder.tracer.records.values()
    here = (r for r in records if r.step == recorder.tracer.step and not r.setup)
    return {ref.entry.cdata for r in here if "picks" not in r.info.row.does for ref in r.outs}


def _learnt(recorder: Recorder) -> set[int]:
    """Of them, those that a parameter has gone into: what a model gave another one is no data."""
    found: set[int] = set()
    for record in recorder.tracer.records.values():
        if record.step == recorder.tracer.step and not record.setup:
            entries = [ref.entry for ref in record_refs(record)]
            if any(e.leaf or e.cdata in found for e in entries):
                found.update(ref.entry.cdata for ref in record.outs)
    return found


def _told(tensor: torch.Tensor, row: int, *, given: bool) -> Oddity | None:
    """With the table that it is a row of; a tensor that has no name is only one on the way."""
    odd = _beyond(tensor, row)
    place = place_in_table(tensor) if odd is not None else None
    if odd is None or (place is None and not given):
        return None
    return odd if place is None else replace(odd, row=place[1] + row, table=place[0])


def _beyond(tensor: torch.Tensor, row: int) -> Oddity | None:
    table = double(tensor).reshape(len(tensor), -1)
    if has_nonfinite(table):
        return None
    others = torch.cat([table[:row], table[row + 1 :]])
    middle = others.median(dim=0).values
    usual = (others - middle).abs().max(dim=0).values
    away = (table[row] - middle).abs()
    ratio = torch.where(usual > 0, away / usual.clamp(min=1e-300), 0.0)
    column = int(ratio.argmax())
    value, typical = float(table[row, column]), float(others[:, column].abs().max())
    if float(ratio[column]) < BEYOND or abs(value) <= typical:
        return None
    return Oddity(
        what="outlier", value=value, typical=typical,
        row=row, column=column if table.shape[1] > 1 else None,
    )  # fmt: skip
