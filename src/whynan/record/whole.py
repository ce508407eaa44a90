"""The data that batches are cut from: what an earlier batch held is still in there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from whynan.model import HistoryRow, Oddity
from whynan.record.oddities import MAX_VALUES, oddity_in
from whynan.record.records import record_refs

if TYPE_CHECKING:
    from whynan.record.recorder import Recorder

LEAP = 1e6  # times the loss before it: no rate does that in one step
MOST = 8


def oddity_before(recorder: Recorder, history: tuple[HistoryRow, ...]) -> Oddity | None:
    """Of the whole data, where the loss had leapt in one step and this batch is an ordinary one."""
    if not _has_leapt(history):
        return None
    seen: set[int] = set()
    for tensor in _wholes(recorder):
        if id(tensor) in seen or len(seen) >= MOST:
            continue
        seen.add(id(tensor))
        found = oddity_in(tensor)
        if found is not None and found.what == "outlier":
            return replace(found, earlier=True)
    return None


def _has_leapt(history: tuple[HistoryRow, ...]) -> bool:
    losses = [row.loss for row in history if row.loss is not None]
    if len(losses) < 2:
        return False
    largest = max((abs(x) for x in losses[:-1] if math.isfinite(x)), default=0.0)
    return not math.isfinite(losses[-1]) or abs(losses[-1]) > LEAP * max(largest, 1e-12)


def _wholes(recorder: Recorder) -> Iterator[torch.Tensor]:
    """What inputs are views of, and what was picked from in this step."""
    yield from (w for t in recorder.batches.inputs if (w := _storage_of(t)) is not None)
    for record in recorder.tracer.records.values():
        if record.step != recorder.tracer.step:
            continue
        for ref in record_refs(record):
            tensor = ref.tensor()
            if tensor is None or tensor.requires_grad or not tensor.is_floating_point():
                continue
            whole = _storage_of(tensor)
            if whole is not None:
                yield whole
            elif "picks" in record.info.row.does:
                yield tensor


def _storage_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """All rows of the storage that a part of whole rows lies in."""
    if not tensor.is_floating_point() or not tensor.dim() or not tensor.is_contiguous():
        return None
    storage, row = tensor.untyped_storage(), math.prod(tensor.shape[1:])
    count = storage.nbytes() // tensor.element_size()
    if not row or count <= tensor.numel() or count % row or count > MAX_VALUES:
        return None
    return torch.as_strided(
        tensor.detach(), (count // row, *tensor.shape[1:]), (row, *tensor.stride()[1:]), 0
    )
