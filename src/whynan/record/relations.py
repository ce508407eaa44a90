"""Which input elements an output element depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from whynan.ops.op import Reads
from whynan.ops.table import NOTHING_KNOWN
from whynan.record.contributions import (
    accumulates,
    argument,
    bag_of,
    contributors,
    source_name,
    source_of,
    values_of,
)
from whynan.record.records import Record
from whynan.record.storages import Index, Ref, overwritten

Selection = tuple[int | slice, ...]
ALL = slice(None)


class Read(NamedTuple):
    """One tensor argument and the part of it that the witness depends on."""

    role: str
    ref: Ref
    selection: Selection
    position: int | str  # which argument
    item: int | None  # which element of a list argument
    known: bool = True  # False: it may depend on any part of this, or on none

    @property
    def element(self) -> Index | None:
        """The one element it depends on; None when there are several."""
        return (
            tuple(i for i in self.selection if isinstance(i, int))
            if all(isinstance(i, int) for i in self.selection)
            else None
        )


MOST_PUT = 6  # of the values put at one place


def reads(record: Record, k: int, index: Index | None) -> list[Read]:
    """What element `index` of output `k` was computed from; of `None`, everything."""
    named = _named(record)
    if index is None:
        return [_whole(*n) for n in named]
    related = _related(record, k, named, index)
    return [read if _fits(read) else _some(*_name(read)) for read in related]


def _related(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    relate = _RELATIONS.get(record.info.reads)
    if relate is not None:
        return relate(record, k, named, index)
    alone = index == () and len(named) == 1  # a number made of everything
    return [_whole(*n) if alone else _some(*n) for n in named]


Named = tuple[str, Ref, int | str, int | None]


def _named(record: Record) -> list[Named]:
    found: list[Named] = []
    arguments: list[tuple[int | str, str, Any]] = [
        (i, record.info.arg_names[i], arg) for i, arg in enumerate(record.args)
    ]
    arguments += [(name, name, arg) for name, arg in record.kwargs.items() if name != "out"]
    if record.info.overwrites or record.info.reads == "nothing":
        arguments = arguments[1:]  # of it, the shape only
    for position, name, arg in arguments:
        if isinstance(arg, Ref):
            found.append((name, arg, position, None))
        elif isinstance(arg, list):
            found += [
                (f"{name}[{i}]", item, position, i)
                for i, item in enumerate(arg)
                if isinstance(item, Ref)
            ]
    return found


def _whole(role: str, ref: Ref, position: int | str, item: int | None) -> Read:
    return Read(role, ref, (ALL,) * len(ref.shape), position, item)


def _some(role: str, ref: Ref, position: int | str, item: int | None) -> Read:
    """Which part of it is not known, unless it has but one."""
    known = all(size == 1 for size in ref.shape)
    return Read(role, ref, (ALL,) * len(ref.shape), position, item, known)


def _broadcast(role: str, ref: Ref, position: int | str, item: int | None, index: Index) -> Read:
    ndim = len(ref.shape)
    if ndim > len(index):
        return _some(role, ref, position, item)
    tail = index[len(index) - ndim :] if ndim else ()
    if any(size not in (1,) and i >= size for i, size in zip(tail, ref.shape, strict=True)):
        return _some(role, ref, position, item)
    selection = tuple(0 if size == 1 else i for i, size in zip(tail, ref.shape, strict=True))
    return Read(role, ref, selection, position, item)


def _elementwise(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The same place of each; of a loss that is added up, all places."""
    return [_broadcast(*n, index) if index else _whole(*n) for n in named]


def _listed(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    lists = [arg for arg in (*record.args, *record.kwargs.values()) if isinstance(arg, list)]
    groups = [arg for arg in lists if any(isinstance(item, Ref) for item in arg)]
    size = len(groups[0]) if groups else 1
    wanted = k % size
    shape = record.outs[k].shape
    chosen = [n for n in named if n[3] in (None, wanted)]
    return [
        _broadcast(*n, index)
        if n[1].shape == shape or not n[1].shape
        else (_some(*n) if shape else _whole(*n))
        for n in chosen
    ]


def _where(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    if len(named) != 3:
        return [_broadcast(*n, index) for n in named]
    condition, yes, no = (_broadcast(*n, index) for n in named)
    mask = condition.ref.tensor()
    if mask is None:
        return [condition, yes, no]
    return [condition, yes if bool(mask[condition.selection]) else no]


def _along(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """All along `dim`, or up to the own place there."""
    dim = argument(record, "dim")
    if not isinstance(dim, int) or not index:
        return [_some(*n) for n in named]
    dim %= len(index)
    part = slice(0, index[dim] + 1) if record.info.reads == "prefix" else ALL
    selection = tuple(part if axis == dim else i for axis, i in enumerate(index))
    return [
        Read(*n[:2], selection, *n[2:]) if len(n[1].shape) == len(index) else _some(*n)
        for n in named
    ]


def _reduced(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    dims = argument(record, "dim")
    dims = [dims] if isinstance(dims, int) else dims
    found = []
    for role, ref, position, item in named:
        if role not in ("self", "input", "x"):
            found.append(_some(role, ref, position, item))
            continue
        ndim = len(ref.shape)
        reduced = {d % ndim for d in dims} if dims and ndim else set(range(ndim))
        keeps = len(record.outs[k].shape) == ndim and ndim > 0
        rest = iter(index)
        selection: list[int | slice] = []
        for axis in range(ndim):
            own = next(rest, 0) if keeps or axis not in reduced else 0
            selection.append(ALL if axis in reduced else own)
        found.append(Read(role, ref, tuple(selection), position, item))
    return found


def _matmul(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Rows of the left operand, columns of the right."""
    if record.info.base in ("matmul", "linear"):
        return _composite_matmul(record, named, index)
    found = []
    for role, ref, position, item in named:
        ndim = len(ref.shape)
        if role in ("mat1", "batch1") or (role == "self" and record.info.row.name == "matmul"):
            found.append(Read(role, ref, (*index[: ndim - 1], ALL), position, item))
        elif role in ("mat2", "batch2") and ndim >= 2:
            found.append(Read(role, ref, (*index[: ndim - 2], ALL, index[-1]), position, item))
        elif role == "self":
            found.append(_broadcast(role, ref, position, item, index))
        else:
            found.append(_some(role, ref, position, item))
    return found


def _composite_matmul(record: Record, named: list[Named], index: Index) -> list[Read]:
    """matmul and linear stay whole under `inference_mode`; unlike batches are left open."""
    linear = record.info.base == "linear"
    if linear or all(len(ref.shape) == len(index) > 1 for _, ref, _, _ in named):
        across: Selection = (index[-1], ALL) if linear else (*index[:-2], ALL, index[-1])
        parts: list[Selection] = [(*index[:-1], ALL), across, (index[-1],)]
        found = [Read(*n[:2], part, *n[2:]) for n, part in zip(named, parts, strict=False)]
        if all(_fits(read) for read in found):
            return found
    return [_some(*n) for n in named]


def _fits(read: Read) -> bool:
    return len(read.selection) == len(read.ref.shape) and all(
        isinstance(i, slice) or i < size
        for i, size in zip(read.selection, read.ref.shape, strict=True)
    )


def _joined(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """cat and stack: one of the pieces."""
    dim = argument(record, "dim") or 0
    stacked = record.info.base == "stack"
    dim %= max(len(index), 1)
    left = index[dim] if index else 0
    for role, ref, position, item in named:
        if stacked:
            if left == item:
                return [Read(role, ref, index[:dim] + index[dim + 1 :], position, item)]
            continue
        size = ref.shape[dim] if len(ref.shape) > dim else 0
        if left < size:
            return [Read(role, ref, (*index[:dim], left, *index[dim + 1 :]), position, item)]
        left -= size
    return [_some(*n) for n in named]


def _looked_up(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """embedding, index_select and gather along known indices."""
    tables = [n for n in named if n[0] in ("weight", "self")]
    indices = next((n for n in named if n[0] in ("indices", "index")), None)
    where = indices[1].tensor() if indices is not None else None
    if not tables or where is None:
        return [_some(*n) for n in named]
    role, ref, position, item = tables[0]
    base = record.info.base
    if base == "embedding":
        row = int(where[index[:-1]])
        return [Read(role, ref, (row, index[-1]), position, item)]
    dim = int(argument(record, "dim") or 0) % max(len(index), 1)
    row = int(where[index]) if base == "gather" else int(where.reshape(-1)[index[dim]])
    return [Read(role, ref, (*index[:dim], row, *index[dim + 1 :]), position, item)]


def _rows(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Operations that keep the leading dimensions apart: group norm by samples, attention by heads
    as well. Where keys have fewer heads than queries, several of these share one: that is left open."""
    shape, lead = record.outs[k].shape, 1
    if record.info.reads == "heads":  # a sequence of vectors for each
        lead = next((len(ref.shape) for role, ref, _, _ in named if role == "query"), 2) - 2
    found = []
    for role, ref, position, item in named:
        mine = len(ref.shape) > lead < len(index) and (not lead or ref.shape[0] in (1, shape[0]))
        if not mine or "weight" in role or role in ("bias", "mask"):
            found.append(_some(role, ref, position, item))
            continue
        head = tuple(
            0 if size == 1 else i if size == out else ALL
            for size, i, out in zip(ref.shape, index[:lead], shape, strict=False)
        )
        rest = (ALL,) * (len(ref.shape) - lead)
        found.append(Read(role, ref, (*head, *rest), position, item, ALL not in head))
    return found


def _weight_norm(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """g / |v|, a norm for each place along `dim`; the second output holds the norms."""
    dim = argument(record, "dim") or 0
    found = []
    for role, ref, position, item in named:
        along = tuple(
            index[dim] if axis == dim % len(index) else ALL for axis in range(len(ref.shape))
        )
        found.append(Read(role, ref, along, position, item))
    return found


def _cross(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The two other components of each vector."""
    dim = argument(record, "dim")
    dim = (-1 if dim is None else dim) % max(len(index), 1)
    found = []
    for n in named:
        for further in (1, 2):
            other = (index[dim] + further) % 3
            found.append(_broadcast(*n, (*index[:dim], other, *index[dim + 1 :])))
    return found


def _normalised(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Layer norm: everything in the last dimensions; a weight for each place there."""
    if record.info.row is NOTHING_KNOWN:  # its derivative
        return _normalised_backward(record, k, named, index)
    inner = len(argument(record, "normalized_shape") or ())
    found = []
    for role, ref, position, item in named:
        outer = len(ref.shape) - inner
        if role == "input":
            found.append(Read(role, ref, (*index[:outer], *(ALL,) * inner), position, item))
        elif k == 0 and len(index) >= inner:
            found.append(Read(role, ref, index[len(index) - inner :], position, item))
    return found


def _normalised_backward(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The gradient of what went in; those of the weights are left open."""
    inner = len(argument(record, "normalized_shape") or ())
    outer = len(index) - inner
    if k != 0 or outer < 0:
        return [_some(*n) for n in named]
    found = []
    for role, ref, position, item in named:
        whole = len(ref.shape) == inner  # a weight
        head = () if whole else index[:outer]
        found.append(Read(role, ref, (*head, *(ALL,) * inner), position, item))
    return found


def _name(read: Read) -> Named:
    return read.role, read.ref, read.position, read.item


def _convolved_backward(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The gradient of a kernel, from the channels that it joins; that of the input is left open."""
    plain = not argument(record, "transposed") and argument(record, "groups") == 1
    if k == 0 or not plain or (k == 1 and len(index) < 2):
        return [_some(*n) for n in named]
    channels = {"grad_output": index[0], **({"input": index[1]} if k == 1 else {})}
    found = []
    for role, ref, position, item in named:
        if role in channels:
            rest = (ALL,) * (len(ref.shape) - 2)
            found.append(Read(role, ref, (ALL, channels[role], *rest), position, item))
    return found


def _channels(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Batch norm: everything in a channel."""
    channel = index[1] if len(index) > 1 else index[0]
    found = []
    for role, ref, position, item in named:
        if role == "input" and len(ref.shape) > 1:
            rest = (ALL,) * (len(ref.shape) - 2)
            found.append(Read(role, ref, (ALL, channel, *rest), position, item))
        elif len(ref.shape) == 1 and channel < ref.shape[0]:
            found.append(Read(role, ref, (channel,), position, item))
    return found


def _convolved(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The window under the kernel; spread kernels and transposed ones are left open."""
    if record.info.base == "convolution_backward":
        return _convolved_backward(record, k, named, index)
    if record.info.base != "convolution":
        return [r._replace(known=False) for r in _rows(record, k, named, index)]
    weight = next(ref for role, ref, _, _ in named if role == "weight")
    step, pad, spread = (argument(record, n) for n in ("stride", "padding", "dilation"))
    plain = not argument(record, "transposed") and all(d == 1 for d in spread)
    if not plain or len(weight.shape) != len(index):
        return [r._replace(known=False) for r in _rows(record, k, named, index)]
    sizes = weight.shape[2:]
    lows = [o * _each(step, a) - _each(pad, a) for a, o in enumerate(index[2:])]
    window = [slice(max(low, 0), max(low + size, 0)) for low, size in zip(lows, sizes, strict=True)]
    group = index[1] // max(weight.shape[0] // (argument(record, "groups") or 1), 1)
    channels = slice(group * weight.shape[1], (group + 1) * weight.shape[1])
    selections: dict[str, Selection] = {
        "input": (index[0], channels, *window),
        "weight": (index[1], *(ALL,) * (len(index) - 1)),
        "bias": (index[1],),
    }
    return [Read(role, ref, selections[role], at, item) for role, ref, at, item in named]


def _each(sizes: list[int], axis: int) -> int:
    return sizes[axis] if axis < len(sizes) else sizes[0]


def _transformed(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Whole matrices, the last two dimensions; of a Fourier transform, the transformed ones."""
    dims = argument(record, "dim") if record.info.reads == "transform" else (-2, -1)
    found = []
    for role, ref, position, item in named:
        ndim = len(ref.shape)
        if not isinstance(dims, (list, tuple)) or ndim < 2 > len(dims):
            found.append(_some(role, ref, position, item))
            continue
        together = {d % ndim for d in dims} if ndim else set()
        selection = tuple(
            ALL if axis in together or axis >= len(index) else index[axis] for axis in range(ndim)
        )
        found.append(Read(role, ref, selection, position, item))
    return found


def _moved(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    role, ref, position, item = named[0]
    place = source_of(record, ref, index)
    if place is None or position != 0:
        return [_some(*n) for n in named]
    return [Read(role, ref, place, position, item)] if place else []


def _chosen(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """One of the values along `dim`; the second output tells which."""
    if len(record.outs) != 2:
        return _reduced(record, k, named, index)
    role, ref, position, item = named[0]
    dim, ndim = argument(record, "dim"), len(ref.shape)
    rows = value_after(record, 1) if record.outs[1].dtype is torch.int64 else None
    if rows is None or not ndim or len(named) > 1:
        return [_some(*n) for n in named]
    dim = (-1 if dim is None else dim) % ndim
    after = dim + 1 if len(index) == ndim else dim
    selection = (*index[:dim], int(rows[index]), *index[after:])
    return [Read(role, ref, selection, position, item)]


def _put(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """What stood there, where that counts, and what was put there."""
    put = contributors(record, index)
    if put is None:
        return [_some(*n) for n in named]
    name = source_name(record)
    found = []
    for n in named:
        if n[0] == "self" and record.info.base != "bincount" and (accumulates(record) or not put):
            found.append(_broadcast(*n, index))
        elif n[0] == name:
            found += _decisive(record, [_broadcast(*n, place) for place in put])
    return found


def _bag(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """The rows of the table that one bag names, and the weights they are given."""
    bag = bag_of(record, index) if k == 0 and len(index) == 2 else None
    ids = values_of(record, argument(record, "indices"))
    if bag is None or ids is None:
        return [_some(*n) for n in named]
    role, ref, position, item = named[0]
    rows = [Read(role, ref, (int(ids[p]), index[1]), position, item) for p in bag]
    weights = [
        Read(*n[:2], (p,), *n[2:]) for n in named if n[0] == "per_sample_weights" for p in bag
    ]
    return [*_decisive(record, rows), *_decisive(record, weights)]


def _decisive(record: Record, found: list[Read]) -> list[Read]:
    """At most a few of them: the non-finite ones, then the largest."""
    values = value_before(record, found[0]) if found else None
    if values is None or len(found) <= MOST_PUT:
        return found[:MOST_PUT]
    places = torch.tensor([r.selection for r in found])
    sizes = values[tuple(places.t())].abs().to(torch.float64).nan_to_num(nan=torch.inf)
    return [found[int(i)] for i in sizes.argsort(descending=True, stable=True)[:MOST_PUT]]


def is_untouched(record: Record, k: int, index: Index | None) -> bool:
    """Whether an operation that puts values at places put none here."""
    if index is None:
        return False
    if record.info.reads == "bag":
        return k == 0 and bag_of(record, index) == []
    return record.info.reads == "put" and contributors(record, index) == []


_RELATIONS: dict[Reads, Callable[[Record, int, list[Named], Index], list[Read]]] = {
    "elementwise": _elementwise,
    "where": _where,
    "row": _along,
    "prefix": _along,
    "reduction": _reduced,
    "choice": _chosen,
    "product": _matmul,
    "lists": _listed,
    "join": _joined,
    "lookup": _looked_up,
    "move": _moved,
    "put": _put,
    "bag": _bag,
    "matrix": _transformed,
    "transform": _transformed,
    "cross": _cross,
    "window": _convolved,
    "channel": _channels,
    "features": _normalised,
    "sample": _rows,
    "heads": _rows,
    "directions": _weight_norm,
}


def value_before(record: Record, read: Read) -> torch.Tensor | None:
    """The argument's values when the operation ran; None when they were overwritten or freed."""
    if record.before is not None and isinstance(read.position, int):
        saved: Any = record.before.get(read.position)
        if isinstance(saved, list):
            saved = saved[read.item or 0]
        if saved is not None:
            return saved  # type: ignore[no-any-return]  # Any from the dict
    return None if overwritten(read.ref, record.index, read.element) else read.ref.tensor()


def value_after(record: Record, k: int) -> torch.Tensor | None:
    """The output's values; None when they were overwritten or freed since."""
    ref = record.outs[k]
    return None if overwritten(ref, record.index + 1, None) else ref.tensor()
