"""Which input elements an output element of a layer depends on: products, windows, norms, heads."""

from __future__ import annotations

from whynan.ops.table import NOTHING_KNOWN
from whynan.record.contributions import argument
from whynan.record.reads import ALL, Given, Read, Selection
from whynan.record.records import Record
from whynan.record.storages import Index


def product(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """Rows of the left operand, columns of the right."""
    if record.info.base in ("matmul", "linear"):
        return _composite_product(record, named, index)
    found = []
    for n in named:
        ndim = len(n.ref.shape)
        if n.role in ("mat1", "batch1") or (n.role == "self" and record.info.row.name == "matmul"):
            found.append(n.part((*index[: ndim - 1], ALL)))
        elif n.role in ("mat2", "batch2") and ndim >= 2:
            found.append(n.part((*index[: ndim - 2], ALL, index[-1])))
        elif n.role == "self":
            found.append(n.at(index))
        else:
            found.append(n.some())
    return found


def _composite_product(record: Record, named: list[Given], index: Index) -> list[Read]:
    """matmul and linear stay whole under `inference_mode`; unlike batches are left open."""
    linear = record.info.base == "linear"
    if linear or all(len(n.ref.shape) == len(index) > 1 for n in named):
        across: Selection = (index[-1], ALL) if linear else (*index[:-2], ALL, index[-1])
        parts: list[Selection] = [(*index[:-1], ALL), across, (index[-1],)]
        found = [n.part(part) for n, part in zip(named, parts, strict=False)]
        if all(read.fits for read in found):
            return found
    return [n.some() for n in named]


def samples(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """Operations that keep the leading dimensions apart: group norm by samples, attention by heads
    as well. Where keys have fewer heads than queries, several of these share one: that is left open."""
    shape, lead = record.outs[k].shape, 1
    if record.info.reads == "heads":  # a sequence of vectors for each
        lead = next((len(n.ref.shape) for n in named if n.role == "query"), 2) - 2
    found = []
    for n in named:
        own = n.ref.shape
        mine = len(own) > lead < len(index) and (not lead or own[0] in (1, shape[0]))
        if not mine or "weight" in n.role or n.role in ("bias", "mask"):
            found.append(n.some())
            continue
        head = tuple(
            0 if size == 1 else i if size == out else ALL
            for size, i, out in zip(own, index[:lead], shape, strict=False)
        )
        rest = (ALL,) * (len(own) - lead)
        found.append(n.part((*head, *rest), known=ALL not in head))
    return found


def directions(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """g / |v|, a norm for each place along `dim`; the second output holds the norms."""
    dim = argument(record, "dim") or 0
    found = []
    for n in named:
        axes = range(len(n.ref.shape))
        found.append(n.part(tuple(index[dim] if a == dim % len(index) else ALL for a in axes)))
    return found


def features(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """Layer norm: everything in the last dimensions; a weight for each place there."""
    inner = len(argument(record, "normalized_shape") or ())
    if record.info.row is NOTHING_KNOWN:  # its derivative
        return _features_backward(k, named, index, inner)
    found = []
    for n in named:
        outer = len(n.ref.shape) - inner
        if n.role == "input":
            found.append(n.part((*index[:outer], *(ALL,) * inner)))
        elif k == 0 and len(index) >= inner:
            found.append(n.part(index[len(index) - inner :]))
    return found


def _features_backward(k: int, named: list[Given], index: Index, inner: int) -> list[Read]:
    """The gradient of what went in; those of the weights are left open."""
    outer = len(index) - inner
    if k != 0 or outer < 0:
        return [n.some() for n in named]
    found = []
    for n in named:
        head = () if len(n.ref.shape) == inner else index[:outer]  # of a weight, all
        found.append(n.part((*head, *(ALL,) * inner)))
    return found


def channels(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """Batch norm: everything in a channel."""
    channel = index[1] if len(index) > 1 else index[0]
    found = []
    for n in named:
        ndim = len(n.ref.shape)
        if n.role == "input" and ndim > 1:
            found.append(n.part((ALL, channel, *(ALL,) * (ndim - 2))))
        elif ndim == 1 and channel < n.ref.shape[0]:
            found.append(n.part((channel,)))
    return found


def window(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """The window under the kernel; spread kernels and transposed ones are left open."""
    if record.info.base == "convolution_backward":
        return _window_backward(record, k, named, index)
    if record.info.base != "convolution":
        return _open_window(record, k, named, index)
    weight = next(n.ref for n in named if n.role == "weight")
    step, pad, spread = (argument(record, n) for n in ("stride", "padding", "dilation"))
    plain = not argument(record, "transposed") and all(d == 1 for d in spread)
    if not plain or len(weight.shape) != len(index):
        return _open_window(record, k, named, index)
    sizes = weight.shape[2:]
    lows = [o * _each(step, a) - _each(pad, a) for a, o in enumerate(index[2:])]
    under = [slice(max(low, 0), max(low + size, 0)) for low, size in zip(lows, sizes, strict=True)]
    group = index[1] // max(weight.shape[0] // (argument(record, "groups") or 1), 1)
    joined = slice(group * weight.shape[1], (group + 1) * weight.shape[1])
    selections: dict[str, Selection] = {
        "input": (index[0], joined, *under),
        "weight": (index[1], *(ALL,) * (len(index) - 1)),
        "bias": (index[1],),
    }
    return [n.part(selections[n.role]) for n in named]


def _open_window(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    return [read._replace(known=False) for read in samples(record, k, named, index)]


def _window_backward(record: Record, k: int, named: list[Given], index: Index) -> list[Read]:
    """The gradient of a kernel, from the channels that it joins; that of the input is left open."""
    plain = not argument(record, "transposed") and argument(record, "groups") == 1
    if k == 0 or not plain or (k == 1 and len(index) < 2):
        return [n.some() for n in named]
    channel = {"grad_output": index[0], **({"input": index[1]} if k == 1 else {})}
    return [
        n.part((ALL, channel[n.role], *(ALL,) * (len(n.ref.shape) - 2)))
        for n in named
        if n.role in channel
    ]


def _each(sizes: list[int], axis: int) -> int:
    return sizes[axis] if axis < len(sizes) else sizes[0]
