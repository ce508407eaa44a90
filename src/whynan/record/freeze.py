"""From a live record to a frozen `OpRecord`: statistics, witness values, what came before."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from whynan.model import (
    FROM_BEFORE,
    FROM_GRADIENT,
    Operand,
    OpRecord,
    Origin,
    Phase,
    Scalar,
    TensorStats,
)
from whynan.model import (
    FROM_LOADER as FROM_LOADER,
)
from whynan.ops.table import row, that
from whynan.record.exponents import exponents_of
from whynan.record.modules import ModuleNames, path_of
from whynan.record.reads import Read, value_after, value_before
from whynan.record.recompute import in_float64
from whynan.record.records import Record, is_torchs_own, record_refs
from whynan.record.relations import is_untouched, reads
from whynan.record.storages import Index, Ref
from whynan.record.tracer import Tracer
from whynan.seam.sites import Frames, site_of
from whynan.seam.stats import dead_columns, first_nonfinite, index_of, stats_of
from whynan.source.meant import LITERAL, mentions_nonfinite
from whynan.source.positions import in_one_loop, written_at

UPSTREAM_DEPTH = 8
ZERO_TRAIL = 256  # a product that has run down to 0 stays there
VANISHING = 1e-30  # of a product this small, the smaller factor is the reason
BINS = frozenset({"bincount", "histc"})
PICKS, SELECTS = that("picks"), that("selects")
CASTS = frozenset(f"Module.{name}" for name in that("casts"))


class Freezer:
    """Freezes single records; `locate` finds the maker of an element."""

    def __init__(
        self,
        tracer: Tracer,
        names: ModuleNames,
        locate: Callable[[Ref, Index | None, int], Any],
    ) -> None:
        self.tracer = tracer
        self.names = names
        self.locate = locate

    def origin(self, node: Any, path: list[Record | None]) -> tuple[OpRecord, Origin]:
        """The origin in full, and what sort of origin it is."""
        record: Record | None = node.record
        if record is None:
            return self._entry(node, path), "entry"
        frozen = replace(
            self.full(record, node.k, node.index, node.value), phase=self.phase(record, path)
        )
        if record.info.entry:
            if _is_literal(frozen):
                return frozen, "literal"
            return replace(frozen, phase="data"), "entry"
        if node.status == "intended" and "fills" in record.info.row.does:
            return frozen, "literal" if _is_written(frozen) else "number"
        if any(p.status == "uninitialised" for p in node.parents):
            return self._with_allocations(frozen, record, node), "uninitialised"
        if node.value is not None and not node.parents and _is_handed_in(frozen, node.value):
            if is_torchs_own(record):
                return frozen, "operation"
            return frozen, "literal" if _is_written(frozen) else "number"
        return frozen, "operation"

    def full(self, record: Record, k: int, index: Index | None, value: Any = None) -> OpRecord:
        """Everything about one operation, with its operands' histories."""
        alive = record.info.entry and value_after(record, k) is not None
        if record.frozen is not None and not alive:
            return record.frozen
        if index is None and record.outs:
            tensor = value_after(record, k)
            index = first_nonfinite(tensor) if tensor is not None else None
        if record.info.entry:  # what comes in is what comes out
            bare = self._bare(record, k, index, value)
            columns = dead_columns(value_after(record, k))
            given = tuple(replace(o, role="value", columns=columns) for o in bare.outputs)
            return replace(bare, inputs=given)
        operands = self._operands(record, k, index, history=True)
        return replace(
            self._bare(record, k, index, value),
            inputs=tuple(o for _, o in operands),
            exact=self._exact(record, k, index),
        )

    def light(self, node: Any) -> OpRecord:
        """One stage of the path: the operation and the witness's value."""
        if node.record is None:
            return self._entry(node, [])
        return self._bare(node.record, node.k, node.index, value=node.value)

    def _bare(self, record: Record, k: int, index: Index | None, value: Any = None) -> OpRecord:
        outputs: tuple[Operand, ...] = ()
        if record.outs:
            tensor = value_after(record, k)
            stats = None if tensor is None else stats_of(tensor)
            if value is None and tensor is not None and index is not None:
                value = tensor[index].item()
            first = None if tensor is None else first_nonfinite(tensor, prefer_nan=False)
            outputs = (replace(self._output(record, k, stats, index, value), first=first),)
            outputs += self._companions(record, k, index)
        names = record.info.arg_names
        scalars = {names[i]: scalar_of(a) for i, a in enumerate(record.args) if _is_scalar(a)}
        scalars |= {name: scalar_of(a) for name, a in record.kwargs.items() if _is_scalar(a)}
        return OpRecord(
            index=record.index,
            op=record.info.name,
            phase=self.phase(record, []),
            step=record.step,
            site=site_of(record.frames) if record.frames else None,
            outputs=outputs,
            scalars=scalars,
            module=path_of(record.module),
            inside=_inside(record.frames),
            node=record.node,
            derived=record.derived,
            untouched=bool(record.outs) and is_untouched(record, k, index),
        )

    def _companions(self, record: Record, k: int, index: Index | None) -> tuple[Operand, ...]:
        """Other outputs without which this one says little: of a sign, the logarithm."""
        if index is None or record.info.row.name != "slogdet":
            return ()
        found = []
        for other, ref in enumerate(record.outs):
            tensor = value_after(record, other)
            if other != k and tensor is not None and ref.shape == record.outs[k].shape:
                value = tensor[index].item()
                found.append(self._output(record, other, stats_of(tensor), index, value))
        return tuple(found)

    @staticmethod
    def _output(
        record: Record, k: int, stats: TensorStats | None, index: Index | None, value: Any
    ) -> Operand:
        dtype = str(record.outs[k].dtype).removeprefix("torch.")
        return Operand(role=f"output {k}", stats=stats, index=index, dtype=dtype, value=real(value))

    def phase(self, record: Record, path: list[Record | None]) -> Phase:
        """When the operation ran, in the words of the design."""
        if record.in_data:
            return "data"
        inside = record.frames.inside if record.frames else None
        if inside is not None and inside.co_qualname in CASTS:
            return "init"  # a cast of the whole model
        if record.node is not None:
            return "backward"  # also in a closure that the optimizer calls
        if record.in_optimizer or record.reads_grad:
            return "optimizer"
        if record.setup and (self.tracer.began or self.tracer.will_train):
            if any(r is not None and not r.setup and _together(record, r) for r in path):
                return "forward"
            return "data" if self._reaches_model(path) else "init"
        return "forward"

    def _reaches_model(self, path: list[Record | None]) -> bool:
        return any(
            r.in_data or any(o.entry.model_input for o in r.outs) for r in path if r is not None
        )

    def _entry(self, node: Any, path: list[Record | None]) -> OpRecord:
        """A value that nothing recorded made: a parameter, a buffer, data."""
        ref: Ref = node.ref
        entry = ref.entry
        reader = next((r for r in path[1:] if r is not None), None)
        frames: Frames | None = entry.entered or (reader.frames if reader else None)
        name = self.names.name_of_storage(entry)
        outside = FROM_LOADER if entry.entered is not None else "data from outside torch"
        if entry.from_grad:
            outside = FROM_GRADIENT
        source = " ".join(name) if name else outside
        tensor = ref.tensor()
        operand = Operand(
            role="value",
            stats=None if tensor is None else stats_of(tensor),
            index=node.index,
            first=None if tensor is None else first_nonfinite(tensor, prefer_nan=False),
            columns=dead_columns(tensor),
            value=real(node.value),
            source=source,
        )
        return OpRecord(
            index=-1,
            op="entry",
            phase="init" if name else "data",
            step=reader.step if reader else self.tracer.step,
            site=site_of(frames) if frames else None,
            inputs=(operand,),
            outputs=(operand,),
            module=None,
        )

    # ---- operands -----------------------------------------------------------------------

    def _operands(
        self, record: Record, k: int, index: Index | None, *, history: bool
    ) -> list[tuple[Read, Operand]]:
        """What the witness was computed from; of a product of rows, the same term of each."""
        found = reads(record, k, index)
        term: dict[int, Index] = {}
        if index is not None and record.info.reads in ("product", "elementwise"):
            term = _term(record, found)
        elif index is not None and record.info.base in SELECTS and len(found) == 1:
            term = _equal_one(record, found[0], k, index)
        return [
            (read, self._operand(record, read, index, term.get(i), history=history))
            for i, read in enumerate(found)
        ]

    def _operand(
        self,
        record: Record,
        read: Read,
        own: Index | None,
        chosen: Index | None = None,
        *,
        history: bool,
    ) -> Operand:
        """One argument; of a slice, the element that decides: in a softmax its own logit."""
        tensor = value_before(record, read)
        if tensor is None:
            return Operand(role=read.role, stats=None, source=self._source(read.ref))
        index, part_stats = read.element, None
        if index is None:
            part = tensor[read.selection]
            part_stats = stats_of(part)
            keeps_place = record.info.reads in ("row", "prefix") and len(own or ()) == tensor.dim()
            index = chosen or (own if keeps_place else _extreme(part, read.selection))
            if not read.known and index is not None and not _is_bad(tensor, index):
                index = None  # it may have nothing to do with the witness
        value = real(tensor[index].item()) if index is not None and tensor.numel() else None
        upstream: tuple[OpRecord, ...] = ()
        selects = record.info.base == "where" and is_torchs_own(record)
        if history and (tensor.dtype is not torch.bool or selects):
            upstream = self._upstream(record, read.ref, index, value)
        return Operand(
            role=read.role,
            stats=_spread(tensor) if history else stats_of(tensor),
            index=index,
            value=value,
            slice_stats=part_stats,
            source=self._source(read.ref, record),
            upstream=upstream,
        )

    def _source(self, ref: Ref, record: Record | None = None) -> str | None:
        entry = ref.entry
        name = self.names.name_of_storage(entry)
        if name:
            return " ".join(name)
        if entry.entered is not None:
            return FROM_LOADER
        made = [i for i, _ in entry.writers if record is None or i < record.index]
        if made:
            return None
        return "leaf tensor" if entry.leaf else FROM_BEFORE

    def _upstream(
        self, record: Record, ref: Ref, index: Index | None, value: float | None
    ) -> tuple[OpRecord, ...]:
        """How a finite operand came to be: its maker, that one's deciding operand, and so on."""
        found: list[OpRecord] = []
        before = record.index
        while index is not None and len(found) < ZERO_TRAIL:
            if len(found) >= UPSTREAM_DEPTH and found[-1].value != 0:
                break
            node = self.locate(ref, index, before)
            maker: Record | None = node.record
            if maker is None or maker.info.allocates or _is_seed(maker):
                break
            bare = self._bare(maker, node.k, node.index)
            if bare.value is None and bare.outputs:  # overwritten since: its reader saw it
                bare = replace(bare, outputs=(replace(bare.outputs[0], value=value),))
            operands = self._operands(maker, node.k, node.index, history=False)
            if bare.name in BINS and bare.value == 0:
                operands = []  # nothing fell into that bin
            if bare.name == "sub" and bare.value == 0:
                operands = [(r, self._with_maker(maker, r, o)) for r, o in operands]
            slope = maker.derived and not self._carries_gradient(maker)
            found.append(replace(bare, inputs=tuple(o for _, o in operands), is_slope=slope))
            chosen = _deciding(found[-1], operands)
            if chosen is None:
                break
            read, operand = chosen
            ref, index, before, value = read.ref, operand.index, maker.index, operand.value
        return tuple(found)

    def _carries_gradient(self, record: Record) -> bool:
        """Whether a gradient went into it: what another node made, or what the pass began with."""
        pending, seen = [record], {record.index}
        while pending and len(seen) < ZERO_TRAIL:
            current = pending.pop()
            for ref in record_refs(current):
                before = (i for i, _ in reversed(ref.entry.writers) if i < current.index)
                maker = self.tracer.records.get(next(before, -1))
                if maker is None:
                    continue
                if _is_seed(maker) or (maker.node is not None and maker.node != record.node):
                    return True
                if maker.derived and maker.index not in seen:
                    seen.add(maker.index)
                    pending.append(maker)
        return bool(pending)

    def _with_allocations(self, frozen: OpRecord, record: Record, node: Any) -> OpRecord:
        """Of each operand that nothing has written: where its memory was asked for."""
        found = reads(record, node.k, node.index)
        if len(found) != len(frozen.inputs):
            return frozen
        inputs = []
        for read, operand in zip(found, frozen.inputs, strict=True):
            made = self.locate(read.ref, operand.index, record.index) if operand.index is not None else None  # fmt: skip
            if made is not None and made.record is not None and made.record.info.allocates:
                bare = self._bare(made.record, made.k, made.index, operand.value)
                operand = replace(operand, upstream=(bare,))
            inputs.append(operand)
        return replace(frozen, inputs=tuple(inputs))

    def _with_maker(self, record: Record, read: Read, operand: Operand) -> Operand:
        """Equal minuend and subtrahend: what made them tells a constant from a cancellation."""
        made = self.locate(read.ref, operand.index, record.index).record if operand.index is not None else None  # fmt: skip
        return operand if made is None else replace(operand, source=f"result of {made.info.base}")

    def reader_of_garbage(self, record: Record, k: int, index: Index | None) -> Any:
        """The operation upstream that read memory nobody had written, if one did."""
        for read in reads(record, k, index):
            if not read.ref.dtype.is_floating_point:
                continue
            reader, ref, element, before = (record, k, index), read.ref, read.element, record.index
            tensor = value_before(record, read)
            if element is None and tensor is not None:
                element = _extreme(tensor[read.selection], read.selection)
            for _ in range(UPSTREAM_DEPTH):
                node = self.locate(ref, element, before) if element is not None else None
                if node is None or node.record is None:
                    break
                if node.record.info.allocates:
                    return reader
                maker = node.record
                every = self._operands(maker, node.k, node.index, history=False)
                operands = [(r, o) for r, o in every if r.ref.dtype.is_floating_point]
                chosen = _deciding(self._bare(maker, node.k, node.index), operands)
                if chosen is None:
                    break
                reader = (maker, node.k, node.index)
                ref, element, before = chosen[0].ref, chosen[1].index, maker.index
        return None

    def _exact(self, record: Record, k: int, index: Index | None) -> float | None:
        """The witness in float64: tells an overflow from an undefined result."""
        outs = in_float64(record) if index is not None else None
        if outs is None or index is None or k >= len(outs):
            return None
        if outs[k].shape != record.outs[k].shape:
            return None
        return real(outs[k][index].item())


def _term(record: Record, found: list[Read]) -> dict[int, Index]:
    """Of a sum of products or losses, the term that decides: a non-finite one, else the largest."""
    sums = [(i, r) for i, r in enumerate(found) if r.element is None and r.known]
    values = [value_before(record, r) for _, r in sums]
    if len(sums) != 2 or any(v is None for v in values):
        return {}
    a, b = (v[r.selection] for v, (_, r) in zip(values, sums, strict=True) if v is not None)
    if a.shape != b.shape or not a.numel():
        return {}
    shape, a, b = a.shape, a.reshape(-1).to(torch.float64), b.reshape(-1).to(torch.float64)
    sizes = (a - b).abs() if record.info.reads == "elementwise" else a.abs() * b.abs()
    if not bool(sizes.any()):  # a 0 times something says more than 0 times 0
        sizes = a.abs() + b.abs()
    # 0 times an infinity is NaN by itself, a finite number times it only together with others.
    bad = ~(torch.isfinite(a) & torch.isfinite(b))
    alone = torch.isnan(a * b).to(torch.float64) + bad.to(torch.float64)
    at = (alone if bool(bad.any()) else sizes).argmax()
    inner = [int(i) for i in torch.unravel_index(at.cpu(), shape)]
    return {i: _within(r.selection, inner) for i, r in sums}


def _equal_one(record: Record, read: Read, k: int, index: Index) -> dict[int, Index]:
    """Of a largest or smallest value, the element that it is."""
    values, out = value_before(record, read), value_after(record, k)
    if values is None or out is None or read.element is not None:
        return {}
    part = values[read.selection]
    same = (part == out[index]).nonzero()
    return {0: _within(read.selection, [int(i) for i in same[0]])} if len(same) else {}


def _within(selection: tuple[int | slice, ...], inner: Sequence[int]) -> Index:
    """An element of a slice, as one of the tensor that was sliced."""
    rest = iter(inner)
    return tuple(i if isinstance(i, int) else (i.start or 0) + next(rest) for i in selection)


def _is_bad(tensor: torch.Tensor, index: Index) -> bool:
    value = tensor[index].item()
    return not cmath.isfinite(value)


def _extreme(part: torch.Tensor, selection: tuple[int | slice, ...]) -> Index | None:
    """The element of a slice that decides: the first non-finite one, else the largest."""
    if part.numel() == 0:
        return None
    inner = first_nonfinite(part)
    if inner is None:
        flat = part.reshape(-1)
        flat = flat.abs() if flat.dtype != torch.bool else flat.to(torch.uint8)
        position = int(flat.argmax())
        inner = index_of(position, part.shape)
    return _within(selection, inner)


def _deciding(maker: OpRecord, operands: list[tuple[Read, Operand]]) -> tuple[Read, Operand] | None:
    """Which operand explains the maker's value; None where the explanation ends."""
    known = [(r, o) for r, o in operands if o.value is not None and o.stats is not None]
    if not known or (maker.name == "sub" and maker.value == 0):
        return None
    if maker.name in PICKS:  # the value, not its position; and only if it is the same element
        return known[0] if known[0][1].value == maker.value else None
    known_as = row(maker.name)
    if maker.value == 0 and (maker.name in ("mul", "div", "pow") or known_as.reads == "cross"):
        zero = [pair for pair in known if pair[1].value == 0]
        return zero[0] if zero else known[0]
    vanishing = maker.name == "mul" and abs(maker.value or 1.0) < VANISHING
    if vanishing or (maker.value == 0 and known_as.reads == "product"):
        return min(known, key=lambda pair: abs(pair[1].value or 0.0))
    return max(known, key=lambda pair: abs(pair[1].value or 0.0))


def _is_seed(record: Record) -> bool:
    """The 1 that a backward pass begins with: nobody wrote it."""
    inside = _inside(record.frames) or ""
    return record.info.base == "ones_like" and inside.endswith(("backward", "grad"))


def _together(first: Record, second: Record) -> bool:
    a, b = (site_of(r.frames) if r.frames else None for r in (first, second))
    return a is not None and b is not None and in_one_loop(a, b)


def _is_scalar(arg: Any) -> bool:
    return isinstance(arg, (bool, int, float, str, torch.dtype)) or (
        isinstance(arg, (list, tuple)) and bool(arg) and all(isinstance(a, int) for a in arg)
    )


def scalar_of(arg: Any) -> Scalar:
    """A non-tensor argument as something a report can hold."""
    if isinstance(arg, (bool, int, float, str)):
        return arg
    return str(arg).removeprefix("torch.")


def real(value: Any) -> float | None:
    """A number that JSON can order: of a complex one, the non-finite part or the magnitude."""
    if value is None:
        return None
    if isinstance(value, complex):
        return value.real if value.real - value.real != 0 else abs(value)
    return float(value)


def _inside(frames: Frames | None) -> str | None:
    """The library function that the user called: `torch.nn.functional.cross_entropy`."""
    if frames is None or frames.inside is None:
        return None
    code = frames.inside
    return code.co_qualname


def _is_handed_in(op: OpRecord, value: float) -> bool:
    """Whether a number of that kind, NaN or infinite, was among the arguments; of an update, any:
    an infinite learning rate times a gradient of 0 is NaN."""
    numbers = [v for v in op.scalars.values() if isinstance(v, float) and v - v != 0]
    if op.phase == "optimizer":
        return bool(numbers)
    return any((v != v) == (value != value) for v in numbers)


def _is_literal(frozen: OpRecord) -> bool:
    return frozen.site is not None and bool(LITERAL.search(written_at(frozen.site)))


def _is_written(frozen: OpRecord) -> bool:
    return frozen.site is not None and mentions_nonfinite(frozen.site)


def _spread(tensor: torch.Tensor) -> TensorStats:
    return replace(stats_of(tensor), exponents=exponents_of(tensor))
