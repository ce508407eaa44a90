"""A recorded operation once more, from its recorded operands.

`call_of` is its arguments, as they were or in another type; `in_float64` is what it would have been
without the type's limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from whynan.record.reads import Read, value_before
from whynan.record.records import Record, flat
from whynan.record.relations import reads
from whynan.record.schema import REPEATABLE
from whynan.record.storages import Ref
from whynan.seam.devices import double, has_float64

MAX_NUMEL = 1 << 24
Change = Callable[[torch.Tensor], torch.Tensor]
Substitute = Callable[[Ref], torch.Tensor | None]


class Call(NamedTuple):
    """An operation's arguments. Their values are copies: whoever runs it may write to them."""

    args: list[Any]
    kwargs: dict[str, Any]


def copied(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


def widened(value: torch.Tensor) -> torch.Tensor:
    """In float64; where the device has none, everything goes to the CPU."""
    if value.is_floating_point() or value.is_complex():
        return double(value.detach(), copy=True)
    return value if has_float64(value.device.type) else value.cpu()


def unsubstituted(ref: Ref) -> torch.Tensor | None:
    return None


def is_repeatable(record: Record) -> bool:
    """Whether it may be done once more: it is torch's own, draws nothing and did not fail."""
    info = record.info
    if info.random or record.raised is not None or info.namespace not in REPEATABLE:
        return False
    # It warns of too few values; torch would hand that warning to the program's next call.
    return "spread" not in info.row.does


def call_of(
    record: Record, change: Change = copied, substitute: Substitute = unsubstituted
) -> Call | None:
    """What it was called with, each value changed; None if one of them is gone or too large."""
    values = _values(record, change, substitute)
    return None if values is None else _call(record, values, wide=change is not copied)


def in_float64(record: Record, substitute: Substitute = unsubstituted) -> list[torch.Tensor] | None:
    """Its outputs from its operands in float64, some of them substituted; None if it cannot be."""
    if not is_repeatable(record):
        return None
    values = _values(record, widened, substitute)
    if values is None:
        return None
    if record.info.base in ("_to_copy", "copy"):
        source = values.get((1 if record.info.base == "copy" else 0, None))
        return None if source is None else [source.expand(record.outs[0].shape).clone()]
    if record.info.overwrites:
        return None
    return run_again(record, _call(record, values, wide=True))


def run_again(record: Record, call: Call) -> list[torch.Tensor] | None:
    """What the same operator makes of these arguments."""
    try:
        out = record.info.func(*call.args, **call.kwargs)
    except Exception:  # many kernels have no float64 form; then there is simply no answer
        return None
    written = written_by(record, call)
    return written + [t for t in flat(out) if all(t is not known for known in written)]


def written_by(record: Record, call: Call) -> list[torch.Tensor]:
    """Those of its arguments that it writes to: they come first among what it made."""
    return flat([call.args[i] for i in record.info.write_args if i < len(call.args)])


Values = dict[tuple[Any, Any], torch.Tensor]  # by the place among the arguments


def _values(record: Record, change: Change, substitute: Substitute) -> Values | None:
    values: Values = {}
    for read in reads(record, 0, None):
        value = _value(record, read, substitute)
        if value is None or value.numel() > MAX_NUMEL:
            return None
        values[read.position, read.item] = change(value)
    return values


def _value(record: Record, read: Read, substitute: Substitute) -> torch.Tensor | None:
    value = substitute(read.ref)
    return value_before(record, read) if value is None else value


def _call(record: Record, values: Values, *, wide: bool) -> Call:
    args = [_swap(values, i, a, wide) for i, a in enumerate(record.args)]
    kwargs = {n: _swap(values, n, a, wide) for n, a in record.kwargs.items() if n != "out"}
    if wide and record.info.base in ("_softmax", "_log_softmax"):
        args[2] = False  # half_to_float
    return Call(args, kwargs)


def _swap(values: Values, position: Any, arg: Any, wide: bool) -> Any:
    if isinstance(arg, Ref):
        read = values.get((position, None))
        if read is not None:
            return read
        whole = arg.tensor()  # not read: its shape is what counts
        return widened(whole) if wide and whole is not None else whole
    if isinstance(arg, list) and any(isinstance(a, Ref) for a in arg):
        return [values.get((position, i)) for i in range(len(arg))]
    if wide and isinstance(arg, torch.dtype) and arg.is_floating_point:
        return torch.float64
    if wide and isinstance(arg, torch.device) and not has_float64(arg.type):
        return torch.device("cpu")
    return arg
