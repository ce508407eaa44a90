"""Whether the rows of a result still stand where the batch had them."""

from __future__ import annotations

from typing import Any

import torch

from whynan.record.records import Record, record_refs
from whynan.record.storages import Ref
from whynan.record.tracer import Tracer

Order = tuple[int, ...]  # which row of the batch stands at each place
SAME: Order = ()
LOST: Order = (-1,)
MAX_RECORDS = 5_000
DIM_AT = {"gather": 1, "index_select": 1, "sort": 1, "topk": 2, "flip": 1, "roll": 2}


def are_in_order(record: Record, tracer: Tracer) -> bool:
    """Nothing between the model's input and this result sorted, picked or shuffled rows, or it
    was undone: a packed sequence is sorted by length and put back."""
    makers = _makers(record, tracer)
    orders: dict[int, Order] = {}  # of each result that comes from the input
    for index in sorted(makers):
        maker = makers[index]
        given = [_order_of(ref, index, orders) for ref in record_refs(maker)]
        known = {order for order in given if order is not None}
        if not known:
            continue
        first = _order_of(maker.args[0], index, orders) if maker.args and isinstance(maker.args[0], Ref) else None  # fmt: skip
        # An embedding is looked up by the batch: then its rows are in the batch's order.
        if first is not None and _moves_rows(maker):
            orders[index] = _moved(first, maker)
        else:
            orders[index] = known.pop() if len(known) == 1 else LOST
    return orders.get(record.index, SAME) == SAME


def _order_of(ref: Ref, before: int, orders: dict[int, Order]) -> Order | None:
    """How the batch's rows stand in it; None: it does not come from the input."""
    if ref.entry.model_input:
        return SAME
    writer = _writer(ref, before)
    return None if writer is None else orders.get(writer)


def _moved(order: Order, record: Record) -> Order:
    """After rows were picked: by all their numbers, each once, it can be undone again."""
    picked = _picked(record)
    if picked is None or order == LOST or sorted(picked) != list(range(len(picked))):
        return LOST
    moved = picked if order == SAME else tuple(order[i] for i in picked)
    return SAME if moved == tuple(range(len(moved))) else moved


def _picked(record: Record) -> Order | None:
    """The rows, by number, in the order that they were put in."""
    args = record.args
    ref: Any = None
    if record.info.base == "index_select":
        ref = args[2] if len(args) > 2 else record.kwargs.get("index")
    elif record.info.base == "index" and len(args) > 1 and len(args[1]) == 1:
        ref = args[1][0]
    elif record.info.base == "sort" and len(record.outs) == 2 and len(record.outs[0].shape) == 1:
        ref = record.outs[1]
    numbers = ref.tensor() if isinstance(ref, Ref) else None
    if numbers is None or numbers.dtype is not torch.int64 or numbers.dim() != 1:
        return None
    return tuple(numbers.tolist())


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
