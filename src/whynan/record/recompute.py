"""The same operation once more in float64: what would it have been without the type's limits?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from whynan.record.reads import Read, value_before
from whynan.record.records import Record, flat
from whynan.record.relations import reads
from whynan.record.schema import REPEATABLE
from whynan.record.storages import Ref

MAX_NUMEL = 1 << 24


def in_float64(
    record: Record, substitute: Callable[[Ref], torch.Tensor | None] = lambda ref: None
) -> list[torch.Tensor] | None:
    """Its outputs from its operands in float64, some of them substituted; None if it cannot be."""
    info = record.info
    if info.random or record.raised is not None or info.namespace not in REPEATABLE:
        return None
    if "spread" in info.row.does:
        # It warns of too few values; torch would hand that warning to the program's next call.
        return None
    values: dict[tuple[Any, Any], torch.Tensor] = {}
    for read in reads(record, 0, None):
        value = _wide(record, read, substitute)
        if value is None or value.numel() > MAX_NUMEL:
            return None
        values[read.position, read.item] = value
    if record.info.base in ("_to_copy", "copy"):
        source = values.get((1 if record.info.base == "copy" else 0, None))
        return None if source is None else [source.expand(record.outs[0].shape).clone()]
    if record.info.overwrites:
        return None
    args = [_swap(values, i, a) for i, a in enumerate(record.args)]
    kwargs = {n: _swap(values, n, a) for n, a in record.kwargs.items() if n != "out"}
    if record.info.base in ("_softmax", "_log_softmax"):
        args[2] = False  # half_to_float
    try:
        out = record.info.func(*args, **kwargs)
    except Exception:  # many kernels have no float64 form; then there is simply no answer
        return None
    if record.info.write_args:
        out = [args[i] for i in record.info.write_args if i < len(args)]
    return flat(out)


def _wide(
    record: Record, read: Read, substitute: Callable[[Ref], torch.Tensor | None]
) -> torch.Tensor | None:
    value = substitute(read.ref)
    if value is None:
        value = value_before(record, read)
    if value is None:
        return None
    if value.is_floating_point():
        return value.to(torch.float64, copy=True)
    return value.to(torch.complex128, copy=True) if value.is_complex() else value


def _swap(values: dict[tuple[Any, Any], torch.Tensor], position: Any, arg: Any) -> Any:
    if isinstance(arg, Ref):
        read = values.get((position, None))
        return arg.tensor() if read is None else read  # not read: its shape is what counts
    if isinstance(arg, list) and any(isinstance(a, Ref) for a in arg):
        return [values.get((position, i)) for i in range(len(arg))]
    if isinstance(arg, torch.dtype) and arg.is_floating_point:
        return torch.float64
    return arg
