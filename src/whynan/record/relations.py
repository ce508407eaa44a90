"""Which input elements an output element depends on."""

from __future__ import annotations

from collections.abc import Callable

import torch

from whynan.ops.op import Reads
from whynan.record.contributions import (
    accumulates,
    argument,
    bag_of,
    contributors,
    source_name,
    source_of,
    values_of,
)
from whynan.record.layers import channels, directions, features, product, samples, window
from whynan.record.reads import ALL, Given, Read, given, value_after, value_before
from whynan.record.records import Record
from whynan.record.storages import Index, Ref
from whynan.seam.devices import double

MOST_PUT = 6  # of the values put at one place


def reads(record: Record, k: int, index: Index | None) -> list[Read]:
    """What element `index` of output `k` was computed from; of `None`, everything."""
    named = given(record)
    if index is None:
        return [n.whole() for n in named]
    related = _related(record, k, named, index)
    return [read if read.fits else _some(read) for read in related]


def _some(read: Read) -> Read:
    return Given(read.role, read.ref, read.position, read.item).some()


def _related(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    relate = _RELATIONS.get(record.info.reads)
    if relate is not None:
        return relate(record, k, named, index)
    alone = index == () and len(named) == 1  # a number made of everything
    return [n.whole() if alone else n.some() for n in named]


def _elementwise(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """The same place of each; of a loss that is added up, all places."""
    return [n.at(index) if index else n.whole() for n in named]


def _listed(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    lists = [arg for arg in (*record.args, *record.kwargs.values()) if isinstance(arg, list)]
    groups = [arg for arg in lists if any(isinstance(item, Ref) for item in arg)]
    size = len(groups[0]) if groups else 1
    wanted = k % size
    shape = record.outs[k].shape
    chosen = [n for n in named if n.item in (None, wanted)]
    return [
        n.at(index)
        if n.ref.shape == shape or not n.ref.shape
        else (n.some() if shape else n.whole())
        for n in chosen
    ]


def _where(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    if len(named) != 3:
        return [n.at(index) for n in named]
    condition, yes, no = (n.at(index) for n in named)
    mask = condition.ref.tensor()
    if mask is None:
        return [condition, yes, no]
    return [condition, yes if bool(mask[condition.selection]) else no]


def _along(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """All along `dim`, or up to the own place there."""
    dim = argument(record, "dim")
    if not isinstance(dim, int) or not index:
        return [n.some() for n in named]
    dim %= len(index)
    part = slice(0, index[dim] + 1) if record.info.reads == "prefix" else ALL
    selection = tuple(part if axis == dim else i for axis, i in enumerate(index))
    return [n.part(selection) if len(n.ref.shape) == len(index) else n.some() for n in named]


def _reduced(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    dims = argument(record, "dim")
    dims = [dims] if isinstance(dims, int) else dims
    found = []
    for n in named:
        if n.role not in ("self", "input", "x"):
            found.append(n.some())
            continue
        ndim = len(n.ref.shape)
        reduced = {d % ndim for d in dims} if dims and ndim else set(range(ndim))
        keeps = len(record.outs[k].shape) == ndim and ndim > 0
        rest = iter(index)
        selection: list[int | slice] = []
        for axis in range(ndim):
            own = next(rest, 0) if keeps or axis not in reduced else 0
            selection.append(ALL if axis in reduced else own)
        found.append(n.part(tuple(selection)))
    return found


def _joined(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """cat and stack: one of the pieces."""
    dim = argument(record, "dim") or 0
    stacked = record.info.base == "stack"
    dim %= max(len(index), 1)
    left = index[dim] if index else 0
    for n in named:
        if stacked:
            if left == n.item:
                return [n.part(index[:dim] + index[dim + 1 :])]
            continue
        size = n.ref.shape[dim] if len(n.ref.shape) > dim else 0
        if left < size:
            return [n.part((*index[:dim], left, *index[dim + 1 :]))]
        left -= size
    return [n.some() for n in named]


def _looked_up(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """embedding, index_select and gather along known indices."""
    table = next((n for n in named if n.role in ("weight", "self")), None)
    indices = next((n for n in named if n.role in ("indices", "index")), None)
    where = indices.ref.tensor() if indices is not None else None
    if table is None or where is None:
        return [n.some() for n in named]
    base = record.info.base
    if base == "embedding":
        row = int(where[index[:-1]])
        return [table.part((row, index[-1]))]
    dim = int(argument(record, "dim") or 0) % max(len(index), 1)
    row = int(where[index]) if base == "gather" else int(where.reshape(-1)[index[dim]])
    return [table.part((*index[:dim], row, *index[dim + 1 :]))]


def _cross(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """The two other components of each vector."""
    dim = argument(record, "dim")
    dim = (-1 if dim is None else dim) % max(len(index), 1)
    found = []
    for n in named:
        for further in (1, 2):
            other = (index[dim] + further) % 3
            found.append(n.at((*index[:dim], other, *index[dim + 1 :])))
    return found


def _transformed(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """Whole matrices, the last two dimensions; of a Fourier transform, the transformed ones."""
    dims = argument(record, "dim") if record.info.reads == "transform" else (-2, -1)
    found = []
    for n in named:
        ndim = len(n.ref.shape)
        if not isinstance(dims, (list, tuple)) or ndim < 2 > len(dims):
            found.append(n.some())
            continue
        together = {d % ndim for d in dims} if ndim else set()
        selection = tuple(
            ALL if axis in together or axis >= len(index) else index[axis] for axis in range(ndim)
        )
        found.append(n.part(selection))
    return found


def _moved(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    first = named[0]
    place = source_of(record, first.ref, index)
    if place is None or first.position != 0:
        return [n.some() for n in named]
    return [first.part(place)] if place else []


def _chosen(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """One of the values along `dim`; the second output tells which."""
    if len(record.outs) != 2:
        return _reduced(record, k, named, index)
    dim, ndim = argument(record, "dim"), len(named[0].ref.shape)
    rows = value_after(record, 1) if record.outs[1].dtype is torch.int64 else None
    if rows is None or not ndim or len(named) > 1:
        return [n.some() for n in named]
    dim = (-1 if dim is None else dim) % ndim
    after = dim + 1 if len(index) == ndim else dim
    return [named[0].part((*index[:dim], int(rows[index]), *index[after:]))]


def _put(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """What stood there, where that counts, and what was put there."""
    put = contributors(record, index)
    if put is None:
        return [n.some() for n in named]
    name = source_name(record)
    found = []
    for n in named:
        if n.role == "self" and record.info.base != "bincount" and (accumulates(record) or not put):
            found.append(n.at(index))
        elif n.role == name:
            found += _decisive(record, [n.at(place) for place in put])
    return found


def _bag(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """The rows of the table that one bag names, and the weights they are given."""
    bag = bag_of(record, index) if k == 0 and len(index) == 2 else None
    ids = values_of(record, argument(record, "indices"))
    if bag is None or ids is None:
        return [n.some() for n in named]
    rows = [named[0].part((int(ids[p]), index[1])) for p in bag]
    weights = [n.part((p,)) for n in named if n.role == "per_sample_weights" for p in bag]
    return [*_decisive(record, rows), *_decisive(record, weights)]


def _decisive(record: Record, found: list[Read]) -> list[Read]:
    """At most a few of them: the non-finite ones, then the largest."""
    values = value_before(record, found[0]) if found else None
    if values is None or len(found) <= MOST_PUT:
        return found[:MOST_PUT]
    places = torch.tensor([r.selection for r in found])
    sizes = double(values[tuple(places.t())].abs()).nan_to_num(nan=torch.inf)
    return [found[int(i)] for i in sizes.argsort(descending=True, stable=True)[:MOST_PUT]]


def is_untouched(record: Record, k: int, index: Index | None) -> bool:
    """Whether an operation that puts values at places put none here."""
    if index is None:
        return False
    if record.info.reads == "bag":
        return k == 0 and bag_of(record, index) == []
    return record.info.reads == "put" and contributors(record, index) == []


_RELATIONS: dict[Reads, Callable[[Record, int, list[Given], Index], list[Read]]] = {
    "elementwise": _elementwise,
    "where": _where,
    "row": _along,
    "prefix": _along,
    "reduction": _reduced,
    "choice": _chosen,
    "product": product,
    "lists": _listed,
    "join": _joined,
    "lookup": _looked_up,
    "move": _moved,
    "put": _put,
    "bag": _bag,
    "matrix": _transformed,
    "transform": _transformed,
    "cross": _cross,
    "window": window,
    "channel": channels,
    "features": features,
    "sample": samples,
    "heads": samples,
    "directions": directions,
}
