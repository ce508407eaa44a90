"""What a later process needs to repeat the origin by itself: its call, with the values it was given."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from whynan.model import BadKind, Call, Held, Material, kind_of
from whynan.record.reads import Given, Selection, given, value_before
from whynan.record.records import Record, record_refs
from whynan.record.relations import reads
from whynan.record.storages import Index, Ref
from whynan.record.tracer import Tracer
from whynan.seam.packing import Unpackable, hollow, pack, plain

MAX_BYTES = 32 << 20  # of all tensors of one material
MAX_CALLS = 6  # of a chain
HOLD_BYTES = 256 << 20  # of operands, while the program is recorded for this
SETTINGS = {
    "torch.set_float32_matmul_precision({!r})": (torch.get_float32_matmul_precision, "highest"),
    "torch.use_deterministic_algorithms({!r})": (
        torch.are_deterministic_algorithms_enabled,
        False,
    ),
    "torch.set_default_dtype({!r})": (torch.get_default_dtype, torch.float32),
}


class Gone(ValueError):
    """The values are no longer in memory, or are too many."""


class Materials:
    """Takes them down when an origin is found, where they are wanted."""

    def __init__(self, tracer: Tracer) -> None:
        self.is_wanted = False
        self._tracer = tracer
        self._known: dict[int, tuple[Material, ...]] = {}  # what was seen first is most

    def of(
        self, record: Record | None, k: int, index: Index | None, value: Any
    ) -> tuple[Material, ...]:
        """Ways to repeat an operation, the most telling one first; none where the values are gone."""
        if not self.is_wanted or record is None or record.info.entry:
            return ()
        if record.materials is not None:
            return record.materials
        known = self._known.get(record.index)
        if known is None:
            known = self._known[record.index] = self._if_possible(record, k, index, value)
        return known

    def _if_possible(
        self, record: Record, k: int, index: Index | None, value: Any
    ) -> tuple[Material, ...]:
        try:
            return tuple(self._made(record, k, index, value))
        except Exception:  # without them there is no repro; the report needs none
            return ()

    def _made(self, record: Record, k: int, index: Index | None, value: Any) -> list[Material]:
        found = []
        for build in (self._backward, self._itself):
            for is_part in (False, True):
                try:
                    found.append(build(record, k, index if is_part else None, _kind(record, value)))
                    break
                except (Gone, Unpackable):
                    pass
        return found

    def _itself(self, record: Record, k: int, index: Index | None, kind: BadKind) -> Material:
        builder = _Builder(self._tracer)
        builder.add(record, _parts(record, k, index))
        message = str(record.raised).split("\n")[0] if record.raised is not None else None
        return builder.material(kind=kind, output=k, message=message)

    def _backward(self, record: Record, k: int, index: Index | None, kind: BadKind) -> Material:
        """The forward operation whose derivative this belongs to, and the gradient that came back."""
        forward = self._forward(record)
        out = record.outs[k].shape if record.outs else ()
        same = index is not None and forward.outs[0].shape == out
        builder = _Builder(self._tracer)
        builder.add(forward, _parts(forward, 0, index if same else None))
        incoming = {
            j: builder.hold(value, (index if same else None) and _one(index))
            for j, value in self._incoming(record, forward).items()
        }
        return builder.material(kind=kind, backward=True, incoming=incoming, reached=tuple(out))

    def _forward(self, record: Record) -> Record:
        at = record.differentiates
        forward = self._tracer.records.get(at) if at is not None else None
        if forward is None or not forward.outs:
            raise Gone
        return forward

    def _incoming(self, record: Record, forward: Record) -> dict[int, torch.Tensor]:
        """What the parts of the formula read that is neither the forward operation's nor their own."""
        parts = [
            r
            for r in list(self._tracer.records.values())
            if r.differentiates == record.differentiates and r.node == record.node and r.derived
        ]
        own = {ref.entry for part in parts for ref in part.outs}
        own |= {ref.entry for ref in (*record_refs(forward), *forward.outs)}
        found: dict[int, torch.Tensor] = {}
        for part in parts:
            for one in given(part):
                at = [j for j, out in enumerate(forward.outs) if out.shape == one.ref.shape]
                free = [j for j in at if j not in found]
                if one.ref.entry in own or not free or not one.ref.dtype.is_floating_point:
                    continue
                value = value_before(part, one.whole())
                if value is not None:
                    found[free[0]] = value
                    own.add(one.ref.entry)
        return found


@dataclass
class _Builder:
    tracer: Tracer
    calls: list[Call] = field(default_factory=list)
    tensors: list[Held] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)  # record -> call
    held: dict[Any, int] = field(default_factory=dict)
    size: int = 0

    def material(self, **given: Any) -> Material:
        settings = [(text, ask(), usual) for text, (ask, usual) in SETTINGS.items()]
        return Material(
            calls=tuple(self.calls),
            tensors=tuple(self.tensors),
            full_shapes=tuple(self.shapes),
            settings=tuple(text.format(now) for text, now, usual in settings if now != usual),
            versions={"torch": torch.__version__, "python": platform.python_version()}
            | _device_of(self.tensors),
            **given,
        )

    def add(self, record: Record, parts: dict[Any, Selection]) -> int:
        if len(self.made) >= MAX_CALLS:
            raise Gone
        read = {(g.position, g.item): g for g in given(record)}

        def stands(position: Any, item: int | None, value: Any) -> Any:
            if not isinstance(value, Ref):
                return None
            one = read.get((position, item))
            if one is None:  # overwritten, or the target of `out=`
                device = _where(value)
                return {"tensor": self._keep(hollow(value.shape, value.dtype, device), value.shape)}
            return self._value(record, one, parts.get((position, item)))

        def argument(position: Any, value: Any) -> Any:
            if isinstance(value, list):
                return [plain(v, partial(stands, position, i)) for i, v in enumerate(value)]
            return plain(value, partial(stands, position, None))

        positional = [argument(i, a) for i, a in enumerate(record.args)]
        named = {n: argument(n, a) for n, a in record.kwargs.items() if n != "out"}
        self.calls.append(Call(op=record.info.name, arguments=json.dumps([positional, named])))
        self.made[record.index] = len(self.calls) - 1
        return len(self.calls) - 1

    def _value(self, record: Record, one: Given, part: Selection | None) -> dict[str, Any]:
        value = value_before(record, one.whole())
        key = (one.ref, record.index if record.before else None, str(part))
        if value is not None:
            if key not in self.held:
                self.held[key] = self.hold(value, part)
            return {"tensor": self.held[key]}
        if part is not None:
            raise Gone
        return {"result": self._result(record, one.ref)}

    def _result(self, record: Record, ref: Ref) -> list[int]:
        """Its values are gone, but not those that it was computed from."""
        earlier = [(i, w) for i, w in ref.entry.writers if i < record.index]
        maker = self.tracer.records.get(earlier[-1][0]) if earlier else None
        if maker is None or maker.info.random or maker.info.entry or earlier[-1][1][1:] != ref[1:]:
            raise Gone
        k = next(k for k, out in enumerate(maker.outs) if out is earlier[-1][1])
        if maker.index not in self.made:
            self.add(maker, {})
        return [self.made[maker.index], k]

    def hold(self, value: torch.Tensor, part: Selection | None) -> int:
        chosen = value if part is None else value[tuple(map(_kept, part))]
        self.size += chosen.numel() * chosen.element_size()
        if self.size > MAX_BYTES:
            raise Gone
        return self._keep(pack(chosen), tuple(value.shape))

    def _keep(self, held: Held, shape: tuple[int, ...]) -> int:
        self.tensors.append(held)
        self.shapes.append(tuple(shape))
        return len(self.tensors) - 1


def _kind(record: Record, value: Any) -> BadKind:
    if record.raised is not None:
        return "raised"
    if value is None or (not isinstance(value, complex) and math.isfinite(value)):
        return "nan"
    return kind_of(value)


def _parts(record: Record, k: int, index: Index | None) -> dict[Any, Selection]:
    """Of operands that are too large as a whole, the part that the witness depends on."""
    if index is None:
        return {}
    return {(r.position, r.item): r.selection for r in reads(record, k, index)}


def _one(index: Index | None) -> Selection:
    return tuple(index or ())


def _kept(at: int | slice) -> slice:
    """The dimension stays."""
    return at if isinstance(at, slice) else slice(at, at + 1)


def _where(ref: Ref) -> str:
    storage = ref.entry.storage()
    return storage.device.type if storage is not None else "cpu"


def _device_of(tensors: list[Held]) -> dict[str, str]:
    device = next((held.device for held in tensors if held.device != "cpu"), "cpu")
    if device != "cuda":
        return {"device": device}
    return {"device": torch.cuda.get_device_name(), "CUDA": str(torch.version.cuda)}
