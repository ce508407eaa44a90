"""Operations that put values at given places: which of them reached one element, if any did."""

from __future__ import annotations

import math
from typing import Any

import torch

from whynan.record.records import Record
from whynan.record.schema import REPEATABLE
from whynan.record.storages import Index, Ref, overwritten

MAX_PLACES = 1_000_000  # of a tensor whose indexing is looked at element by element
BY_ROWS = ("index_add", "index_copy", "index_reduce")  # the others: each element by its own


def argument(record: Record, name: str) -> Any:
    """What was given for an argument; None if nothing was."""
    names = record.info.arg_names
    if name in names and names.index(name) < len(record.args):
        return record.args[names.index(name)]
    return record.kwargs.get(name)


def source_name(record: Record) -> str | None:
    """Which argument holds what is put there; None: plain numbers."""
    for name in ("source", "src", "values", "weights", "grad_output"):
        if isinstance(argument(record, name), Ref):
            return name
    return None


def accumulates(record: Record) -> bool:
    """Whether what stood there before counts as well."""
    base = record.info.base
    if base in ("scatter_reduce", "index_reduce"):
        return argument(record, "include_self") is not False
    if base in ("index_put", "_index_put_impl"):
        return bool(argument(record, "accumulate"))
    return base in ("index_add", "scatter_add") or argument(record, "reduce") is not None


def contributors(record: Record, index: Index) -> list[Index] | None:
    """The elements of what was put that reached this one; None when that cannot be told."""
    targets = _targets(record)
    if targets is None:
        return None
    shape = record.outs[0].shape
    if record.info.base == "embedding_dense_backward" and index[0] == argument(
        record, "padding_idx"
    ):
        return []
    place = sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(index))
    return [tuple(row) for row in (targets == place).nonzero().tolist()]


def _targets(record: Record) -> torch.Tensor | None:
    """For each element of what was put, the place in the result that it went to."""
    base, shape = record.info.base, record.outs[0].shape
    if math.prod(shape) > MAX_PLACES:
        return None
    places = torch.arange(math.prod(shape)).reshape(shape)
    if base in ("index_put", "_index_put_impl"):
        chosen = _plain(record, argument(record, "indices"))
        return None if chosen is MISSING else torch.ops.aten.index.Tensor(places, chosen)
    where = values_of(record, argument(record, "self" if base == "bincount" else _indices(base)))
    if where is None or where.numel() > MAX_PLACES:
        return None
    if base == "bincount":
        return where.long()
    if base == "embedding_dense_backward":
        return places[where]
    dim = argument(record, "dim")
    if not isinstance(dim, int) or not shape:
        return None
    return places.index_select(dim, where) if base in BY_ROWS else places.gather(dim, where.long())


def _indices(base: str) -> str:
    return "indices" if base == "embedding_dense_backward" else "index"


def values_of(record: Record, ref: Any) -> torch.Tensor | None:
    """What the operation was given, on the CPU, if it is still there."""
    if not isinstance(ref, Ref) or overwritten(ref, record.index, None):
        return None
    tensor = ref.tensor()
    return None if tensor is None else tensor.cpu()


def bag_of(record: Record, index: Index) -> list[int] | None:
    """The positions in `indices` that `embedding_bag` read for one row of its result."""
    ids = values_of(record, argument(record, "indices"))
    offsets = values_of(record, argument(record, "offsets"))
    if ids is None or offsets is None or not index:
        return None
    bag = index[0]
    start = int(offsets[bag])
    end = int(offsets[bag + 1]) if bag + 1 < len(offsets) else len(ids)
    padding = argument(record, "padding_idx")
    return [p for p in range(start, end) if padding in (None, -1) or int(ids[p]) != padding]


def source_of(record: Record, ref: Ref, index: Index) -> Index | tuple[()] | None:
    """Of an operation that moves values: where this one stood; () if it came from nowhere."""
    count = math.prod(ref.shape)
    if not 0 < count <= MAX_PLACES or not ref.shape or record.info.namespace not in REPEATABLE:
        return None
    labels = torch.arange(1, count + 1, dtype=torch.float64).reshape(ref.shape)
    given = _plain(record, record.args[1:])
    if given is MISSING:
        return None
    if record.info.base == "constant_pad_nd":
        given = [given[0], 0]
    try:
        moved = record.info.func(labels, *given, **record.kwargs)
    except Exception:  # another type or device than this form of it takes: then it is not known
        return None
    label = int(moved[index])
    if not label:
        return ()
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(label - 1), ref.shape))


MISSING = object()


def _plain(record: Record, arg: Any) -> Any:
    """An argument as it was given; MISSING when its values are gone."""
    if isinstance(arg, Ref):
        values = values_of(record, arg)
        return MISSING if values is None else values
    if isinstance(arg, list):
        items = [_plain(record, a) for a in arg]
        return MISSING if any(a is MISSING for a in items) else items
    return arg
