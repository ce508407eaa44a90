"""Operands that are copied, since they may have changed before anybody asks for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from whynan.record.records import Record
from whynan.record.schema import OpInfo
from whynan.record.storages import Ref
from whynan.seam.reading import is_in_memory

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

# An in-place operation destroys the operand that explains it. Small operands are always kept;
# large ones where the operation has a singular point, the type has little range, or the gradients
# of this step are large enough for an update to overflow.
SMALL_NUMEL = 1 << 12
MAX_COPIED = 1 << 16  # values of an operand of what made the first bad value
INEXACT = frozenset(
    kind
    for kind in vars(torch).values()
    if isinstance(kind, torch.dtype) and (kind.is_floating_point or kind.is_complex)
)


def save_operands(tracer: Tracer, record: Record, info: OpInfo, args: Any) -> None:
    """Of an in-place operation, what it is about to overwrite."""
    if info.random or info.overwrites:
        return
    if tracer.later:
        tracer.later.writes(record)
    for position in info.write_args:
        if position >= len(args):
            continue
        arg = args[position]
        saved: Any = None
        if tracer.later:
            _note_change(tracer, record, arg, record.args[position])
        if isinstance(arg, torch.Tensor):
            saved = _saved(tracer, record, arg, record.args[position])
        elif isinstance(arg, (list, tuple)) and isinstance(record.args[position], list):
            pairs = zip(arg, record.args[position], strict=True)
            saved = [_saved(tracer, record, tensor, ref) for tensor, ref in pairs]
        if saved is not None:
            record.before = record.before or {}
            record.before[position] = saved


def _note_change(tracer: Tracer, record: Record, given: Any, refs: Any) -> None:
    pairs = zip(given, refs, strict=True) if isinstance(refs, list) else [(given, refs)]
    for tensor, ref in pairs:
        if ref is not None and tensor.dtype in INEXACT and is_in_memory(tensor):
            tracer.later.changes(record.index, ref, tensor)


def _saved(tracer: Tracer, record: Record, tensor: Any, ref: Ref | None) -> torch.Tensor | None:
    if ref is None or ref.entry.partial or tensor.dtype not in INEXACT:
        return None
    if not is_in_memory(tensor):
        return None
    small = tensor.numel() <= SMALL_NUMEL or tracer.careful or tracer.shadowing
    if small or record.info.row.is_risky or tensor.element_size() < 4:
        return tensor.detach().clone()  # type: ignore[no-any-return]  # Any in, Tensor out
    return tracer.later.copy(record, tensor) if tracer.later else None


def drop(record: Record, copy: torch.Tensor) -> None:
    """A copy that was made only because nothing was known yet."""
    kept = {}
    for position, saved in (record.before or {}).items():
        if isinstance(saved, list):
            saved = [None if t is copy else t for t in saved]
        kept[position] = None if saved is copy else saved
    record.before = {k: v for k, v in kept.items() if v is not None} or None


def copy_operands(record: Record) -> None:
    """Of a first bad value: a counter that it was divided by may count on before anybody asks."""
    copies: dict[int, Any] = {}
    written = [ref[0] for ref in record.outs]  # `x.mul_(x)`: what was there is gone
    for position, arg in enumerate(record.args):
        if isinstance(arg, Ref) and arg[0] not in written:
            tensor = arg.tensor() if math.prod(arg.shape) <= MAX_COPIED else None
            if tensor is not None:
                copies[position] = tensor.detach().clone()
    record.before = copies | (record.before or {}) or None
