"""Which input elements an output element depends on."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from whynan.record.records import Record
from whynan.record.storages import Index, Ref

Selection = tuple[int | slice, ...]
ALL = slice(None)


class Read(NamedTuple):
    """One tensor argument and the part of it that the witness depends on."""

    role: str
    ref: Ref
    selection: Selection
    position: int | str  # which argument
    item: int | None  # which element of a list argument

    @property
    def element(self) -> Index | None:
        """The one element it depends on; None when there are several."""
        return (
            tuple(i for i in self.selection if isinstance(i, int))
            if all(isinstance(i, int) for i in self.selection)
            else None
        )


MAX_PICKED_FROM = 1_000_000  # values of a tensor whose indexing is looked at element by element

# Same shape in and out, each slice along `dim` computed together.
ALONG_DIM = frozenset(
    {
        "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data",
        "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort", "flip", "renorm",
        "_safe_softmax",
    }
)  # fmt: skip
REDUCTIONS = frozenset(
    {
        "sum", "mean", "nansum", "prod", "amax", "amin", "max", "min", "logsumexp", "var", "std",
        "var_mean", "std_mean", "norm", "linalg_vector_norm", "median", "nanmedian", "any", "all",
        "topk", "aminmax", "nanmean",
    }
)  # fmt: skip


def reads(record: Record, k: int, index: Index | None) -> list[Read]:
    """What element `index` of output `k` was computed from; of `None`, everything."""
    named = _named(record)
    if index is None:
        return [_whole(*n) for n in named]
    base = record.info.base
    if base.startswith(("_foreach_", "_fused_")):
        return _foreach(record, k, index, named)
    if base == "where" and len(named) == 3:
        return _where(named, index)
    if record.info.pointwise or base in ("fill", "native_dropout", "native_dropout_backward"):
        return [_broadcast(*n, index) for n in named]
    if base in ALONG_DIM:
        return [_along(record, *n, index) for n in named]
    if base in REDUCTIONS:
        return [_reduced(record, k, *n, index) for n in named]
    if base in _SPECIAL:
        return _SPECIAL[base](record, k, named, index)
    return [_whole(*n) for n in named]


Named = tuple[str, Ref, int | str, int | None]


def _named(record: Record) -> list[Named]:
    found: list[Named] = []
    arguments: list[tuple[int | str, str, Any]] = [
        (i, record.info.arg_names[i], arg) for i, arg in enumerate(record.args)
    ]
    arguments += [(name, name, arg) for name, arg in record.kwargs.items() if name != "out"]
    if record.info.overwrites:
        arguments = arguments[1:]
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


def _broadcast(role: str, ref: Ref, position: int | str, item: int | None, index: Index) -> Read:
    ndim = len(ref.shape)
    if ndim > len(index):
        return _whole(role, ref, position, item)
    tail = index[len(index) - ndim :] if ndim else ()
    if any(size not in (1,) and i >= size for i, size in zip(tail, ref.shape, strict=True)):
        return _whole(role, ref, position, item)
    selection = tuple(0 if size == 1 else i for i, size in zip(tail, ref.shape, strict=True))
    return Read(role, ref, selection, position, item)


def _foreach(record: Record, k: int, index: Index, named: list[Named]) -> list[Read]:
    lists = [arg for arg in (*record.args, *record.kwargs.values()) if isinstance(arg, list)]
    groups = [arg for arg in lists if any(isinstance(item, Ref) for item in arg)]
    size = len(groups[0]) if groups else 1
    wanted = k % size
    shape = record.outs[k].shape
    chosen = [n for n in named if n[3] in (None, wanted)]
    return [
        _broadcast(*n, index) if n[1].shape == shape or not n[1].shape else _whole(*n)
        for n in chosen
    ]


def _where(named: list[Named], index: Index) -> list[Read]:
    condition, yes, no = (_broadcast(*n, index) for n in named)
    mask = condition.ref.tensor()
    if mask is None:
        return [condition, yes, no]
    return [condition, yes if bool(mask[condition.selection]) else no]


def _argument(record: Record, name: str) -> Any:
    names = record.info.arg_names
    if name in names and names.index(name) < len(record.args):
        return record.args[names.index(name)]
    return record.kwargs.get(name)


def _along(
    record: Record, role: str, ref: Ref, position: int | str, item: int | None, index: Index
) -> Read:
    dim = _argument(record, "dim")
    if not isinstance(dim, int) or len(ref.shape) != len(index) or not index:
        return _whole(role, ref, position, item)
    dim %= len(index)
    until = slice(0, index[dim] + 1) if record.info.base.startswith("cum") else ALL
    selection = tuple(until if axis == dim else i for axis, i in enumerate(index))
    return Read(role, ref, selection, position, item)


def _reduced(
    record: Record, k: int, role: str, ref: Ref, position: int | str, item: int | None, index: Index
) -> Read:
    if role not in ("self", "input", "x"):
        return _whole(role, ref, position, item)
    ndim = len(ref.shape)
    dims = _argument(record, "dim")
    if isinstance(dims, int):
        dims = [dims]
    reduced = {d % ndim for d in dims} if dims and ndim else set(range(ndim))
    keeps = len(record.outs[k].shape) == ndim and ndim > 0
    rest = iter(index)
    selection: list[int | slice] = []
    for axis in range(ndim):
        if axis in reduced:
            selection.append(ALL)
            if keeps:
                next(rest, None)
        else:
            selection.append(next(rest, 0))
    return Read(role, ref, tuple(selection), position, item)


def _matmul(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """mm, bmm, addmm, baddbmm, mv: rows of the left operand, columns of the right."""
    found = []
    for role, ref, position, item in named:
        ndim = len(ref.shape)
        if role in ("mat1", "batch1") or (
            role == "self" and record.info.base in ("mm", "bmm", "mv")
        ):
            found.append(Read(role, ref, (*index[: ndim - 1], ALL), position, item))
        elif role in ("mat2", "batch2") and ndim >= 2:
            found.append(Read(role, ref, (*index[: ndim - 2], ALL, index[-1]), position, item))
        elif role == "self":
            found.append(_broadcast(role, ref, position, item, index))
        else:
            found.append(_whole(role, ref, position, item))
    return found


def _joined(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """cat and stack: one of the pieces."""
    dim = _argument(record, "dim") or 0
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
    return [_whole(*n) for n in named]


def _looked_up(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """embedding, index_select and gather along known indices."""
    tables = [n for n in named if n[0] in ("weight", "self")]
    indices = next((n for n in named if n[0] in ("indices", "index")), None)
    where = indices[1].tensor() if indices is not None else None
    if not tables or where is None:
        return [_whole(*n) for n in named]
    role, ref, position, item = tables[0]
    base = record.info.base
    if base == "embedding":
        row = int(where[index[:-1]])
        return [Read(role, ref, (row, index[-1]), position, item)]
    dim = int(_argument(record, "dim") or 0) % max(len(index), 1)
    row = int(where[index]) if base == "gather" else int(where.reshape(-1)[index[dim]])
    return [Read(role, ref, (*index[:dim], row, *index[dim + 1 :]), position, item)]


def _indexed(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """`x[rows, columns]`, `x[mask]`: torch itself tells which element was picked."""
    role, ref, position, item = named[0]
    given = record.args[1] if len(record.args) > 1 else record.kwargs.get("indices")
    chosen = [a.tensor() if isinstance(a, Ref) else None for a in given or ()]
    known = all(t is not None for t, a in zip(chosen, given or (), strict=True) if a is not None)
    count = math.prod(ref.shape)
    if role != "self" or not chosen or not known or not 0 < count <= MAX_PICKED_FROM:
        return [_whole(*n) for n in named]
    places = torch.arange(count).reshape(ref.shape)
    on_cpu = [t.cpu() if t is not None else None for t in chosen]
    place = torch.ops.aten.index(places, on_cpu)[index]
    return [
        Read(
            role, ref, tuple(int(i) for i in torch.unravel_index(place, ref.shape)), position, item
        )
    ]


def _rows(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """Operations that keep the leading dimension apart: layer norm, convolution, attention."""
    lead = 2 if "attention" in record.info.base else 1
    found = []
    for role, ref, position, item in named:
        first = role in ("input", "query", "key", "value", "self", "grad_output", "attn_mask")
        if first and len(ref.shape) > lead and len(index) > lead:
            head = tuple(0 if ref.shape[a] == 1 else index[a] for a in range(lead))
            fits = all(h < ref.shape[a] for a, h in enumerate(head))
            if fits:
                found.append(
                    Read(role, ref, head + (ALL,) * (len(ref.shape) - lead), position, item)
                )
                continue
        found.append(_whole(role, ref, position, item))
    return found


def _weight_norm(record: Record, k: int, named: list[Named], index: Index) -> list[Read]:
    """g / |v|, a norm for each place along `dim`; the second output holds the norms."""
    dim = _argument(record, "dim") or 0
    found = []
    for role, ref, position, item in named:
        along = tuple(
            index[dim] if axis == dim % len(index) else ALL for axis in range(len(ref.shape))
        )
        found.append(Read(role, ref, along, position, item))
    return found


_SPECIAL = {
    "_weight_norm_interface": _weight_norm,
    **dict.fromkeys(("mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "addbmm"), _matmul),
    **dict.fromkeys(("cat", "stack"), _joined),
    **dict.fromkeys(("embedding", "index_select", "gather"), _looked_up),
    "index": _indexed,
    **dict.fromkeys(
        ("convolution", "native_group_norm", "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_attention_math", "native_layer_norm"),
        _rows,
    ),
}  # fmt: skip


def value_before(record: Record, read: Read) -> torch.Tensor | None:
    """The argument's values when the operation ran; None when they were overwritten or freed."""
    if record.before is not None and isinstance(read.position, int):
        saved: Any = record.before.get(read.position)
        if isinstance(saved, list):
            saved = saved[read.item or 0]
        if saved is not None:
            return saved  # type: ignore[no-any-return]  # Any from the dict
    return None if _overwritten(read.ref, record.index, read.element) else read.ref.tensor()


def value_after(record: Record, k: int) -> torch.Tensor | None:
    """The output's values; None when they were overwritten or freed since."""
    ref = record.outs[k]
    return None if _overwritten(ref, record.index + 1, None) else ref.tensor()


def _overwritten(ref: Ref, since: int, index: Index | None) -> bool:
    """Whether a later operation wrote to this tensor, or to that element of it."""
    later = [written for i, written in ref.entry.writers if i >= since]
    if not later:
        return False
    if index is not None:
        position = ref.position(index)
        return any(written.index_at(position) is not None for written in later)
    first, last = _extent(ref)
    return any(low < last and first < high for low, high in map(_extent, later))


def _extent(ref: Ref) -> tuple[int, int]:
    size = ref.dtype.itemsize
    reach = sum((n - 1) * s for n, s in zip(ref.shape, ref.stride, strict=True) if n > 0)
    return ref.offset * size, (ref.offset + reach + 1) * size
