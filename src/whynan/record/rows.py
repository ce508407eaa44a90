"""Whether the rows of a result still stand where the batch had them."""

from __future__ import annotations

from typing import Any

import torch

from whynan.record.records import Record, record_refs
from whynan.record.storages import Ref
from whynan.record.tracer import Tracer

MAX_RECORDS = 5_000
DIM_AT = {"gather": 1, "index_select": 1, "sort": 1, "topk": 2, "flip": 1, "roll": 2}


def are_in_order(record: Record, tracer: Tracer) -> bool:
    """Nothing between the model's input and this result sorted, picked or shuffled rows."""
    makers = _makers(record, tracer)
    from_input: set[int] = set()
    for index in sorted(makers):
        maker = makers[index]
        origins = [ref for ref in record_refs(maker) if _is_from(ref, index, from_input)]
        if not origins:
            continue
        from_input.add(index)
        # An embedding is looked up by the batch: then its rows are in the batch's order.
        if maker.args and maker.args[0] in origins and _moves_rows(maker):
            return False
    return True


def _is_from(ref: Ref, before: int, records: set[int]) -> bool:
    return ref.entry.model_input or _writer(ref, before) in records


def _makers(record: Record, tracer: Tracer) -> dict[int, Record]:
    """The operations that this one's operands came through, back to the model's input."""
    found = {record.index: record}
    todo = [record]
    while todo and len(found) < MAX_RECORDS:
        current = todo.pop()
        for ref in record_refs(current):
            index = None if ref.entry.model_input else _writer(ref, current.index)
            maker = None if index is None else tracer.records.get(index)
            if maker is not None and maker.index not in found:
                found[maker.index] = maker
                todo.append(maker)
    return found


def _writer(ref: Ref, before: int) -> int | None:
    return next((i for i, _ in reversed(ref.entry.writers) if i < before), None)


def _moves_rows(record: Record) -> bool:
    base, args = record.info.base, record.args
    if base == "index":
        return _picks_rows(args[1][0] if len(args) > 1 and args[1] else None)
    if base not in DIM_AT:
        return False
    names = record.info.arg_names
    default: Any = 0 if base in ("gather", "index_select") else -1
    at = DIM_AT[base]
    dim = args[at] if len(args) > at else record.kwargs.get(names[at], default)
    dims = dim if isinstance(dim, (list, tuple)) else [dim]
    whole = next((r for r in record_refs(record)), None)
    return whole is not None and any(d % max(len(whole.shape), 1) == 0 for d in dims)


def _picks_rows(ref: Ref | None) -> bool:
    """`x[order]` does; `x[:, c]`, `x[arange(n), y]` and a mask that leaves out nothing do not."""
    if ref is None:
        return False
    index = ref.tensor()
    if index is None:
        return True
    if index.dtype in (torch.bool, torch.uint8):
        return not bool(index.all())
    flat = index.reshape(-1)
    return not torch.equal(flat, torch.arange(len(flat), device=flat.device, dtype=flat.dtype))
