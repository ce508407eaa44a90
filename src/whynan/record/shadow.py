"""Overflows that were absorbed into a finite value: is that value right?

`x * rsqrt(inf)` is 0 where the true result may be 1; `1 / (1 + exp(100))` is 0 and that is right.
From the moment an overflow is absorbed, the affected values are carried along in float64, until
they agree with the program's own (no harm) or a sink is reached with a different value (harm).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from whynan.model import Evidence
from whynan.record.recompute import in_float64
from whynan.record.records import Record, record_refs
from whynan.record.storages import Entry, Ref
from whynan.record.tracer import Tracer
from whynan.seam.devices import double

MAX_SHADOW_NUMEL = 1 << 24
MAX_DEPTH = 64
MAX_TRUE_NUMEL = 1 << 22
TOLERANCE = {torch.float16: 0.05, torch.bfloat16: 0.1}
ROUNDING = {torch.float16: 0.02, torch.bfloat16: 0.05, torch.float64: 1e-9}
IMMATERIAL = 1e-6


class Shadow:
    """The float64 twin of a storage, and what is known about the overflow behind it."""

    __slots__ = ("absorbed_at", "evidence", "values")

    def __init__(self, values: torch.Tensor, absorbed_at: int, evidence: Evidence | None) -> None:
        self.values = values
        self.absorbed_at = absorbed_at
        self.evidence = evidence


class Shadows:
    """Carries the twins from operation to operation."""

    def __init__(self, tracer: Tracer, look: Callable[[Record], Evidence | None]) -> None:
        self.tracer = tracer
        self._look = look  # evidence for what this record absorbed, while its values are there
        self.twins: dict[int, tuple[Entry, Shadow]] = {}
        # By the record that wrote them: a value that is used twice would else be computed twice,
        # what it was made from four times, and so on.
        self._true_values: dict[int, list[torch.Tensor] | None] = {}
        self._true_numel = 0

    def __bool__(self) -> bool:
        return bool(self.twins)

    def of(self, ref: Ref) -> Shadow | None:
        found = self.twins.get(ref.entry.cdata)
        return found[1] if found is not None and found[0] is ref.entry else None

    def follow(self, record: Record) -> None:
        """After each operation, while there are twins or when an overflow was just absorbed."""
        sources = [s for ref in record_refs(record) if (s := self.of(ref))]
        source = min(sources, key=lambda s: s.absorbed_at, default=None)
        absorbed = any(ref.entry.overflowed for ref in record.tainted_in or ())
        if source is None and not (absorbed and not record.bad):
            for ref in record.outs:
                self._drop_if_overwritten(ref)
            return
        outs = in_float64(record, self._substitute)
        for k, ref in enumerate(record.outs):
            wide = outs[k] if outs is not None and k < len(outs) else None
            self._update(ref, wide, record, source)

    def _substitute(self, ref: Ref) -> torch.Tensor | None:
        shadow = self.of(ref)
        if shadow is not None:
            return shadow.values.as_strided(ref.shape, ref.stride, ref.offset)
        return self._true_value(ref, self.tracer.next_index, 0) if ref.entry.overflowed else None

    def _true_value(self, ref: Ref, before: int, depth: int) -> torch.Tensor | None:
        """What an overflowed tensor would have been in float64, from the finite values before it."""
        for index, written in reversed(ref.entry.writers):
            if index >= before:
                continue
            record = self.tracer.records.get(index)
            if record is None or not _is_same(written, ref):
                return None  # of a tensor written in parts, no one operation made the value
            outs = self._true_outs(record, depth)
            k = next((k for k, out in enumerate(record.outs) if out is written), None)
            return outs[k] if outs is not None and k is not None and k < len(outs) else None
        return None

    def _true_outs(self, record: Record, depth: int) -> list[torch.Tensor] | None:
        if record.index in self._true_values:
            return self._true_values[record.index]
        if depth > MAX_DEPTH:
            return None

        def deeper(inner: Ref) -> torch.Tensor | None:
            if not inner.entry.overflowed:
                return None
            return self._true_value(inner, record.index, depth + 1)

        outs = in_float64(record, deeper)
        self._true_numel += sum(out.numel() for out in outs or ())
        if self._true_numel > MAX_TRUE_NUMEL:
            self._forget_true_values()
        self._true_values[record.index] = outs
        return outs

    def _forget_true_values(self) -> None:
        self._true_values.clear()
        self._true_numel = 0

    def _update(
        self, ref: Ref, wide: torch.Tensor | None, record: Record, source: Shadow | None
    ) -> None:
        actual = ref.tensor()
        differs = (
            wide is not None
            and actual is not None
            and wide.shape == actual.shape
            and actual.is_floating_point()
            and _differs(wide, actual)
        )
        if not differs or wide is None or actual is None:
            self._drop_if_overwritten(ref)
            return
        shadow = self.of(ref)
        if shadow is None:
            elements = ref.entry.nbytes // ref.dtype.itemsize
            if elements > MAX_SHADOW_NUMEL:
                return
            whole = Ref(ref.entry, 0, (elements,), (1,), ref.dtype).tensor()
            if whole is None:
                return
            at = source.absorbed_at if source else record.index
            evidence = source.evidence if source else self._look(record)
            shadow = Shadow(double(whole, copy=True), at, evidence)
            self.twins[ref.entry.cdata] = (ref.entry, shadow)
        shadow.values.as_strided(ref.shape, ref.stride, ref.offset).copy_(wide)

    def _drop_if_overwritten(self, ref: Ref) -> None:
        shadow = self.of(ref)
        if shadow is None:
            return
        actual = ref.tensor()
        if actual is not None:
            shadow.values.as_strided(ref.shape, ref.stride, ref.offset).copy_(actual)
        if actual is None or actual.numel() == shadow.values.numel():
            del self.twins[ref.entry.cdata]

    def wrong(self, tensor: torch.Tensor) -> tuple[Evidence, torch.Tensor] | None:
        """(where it began, the right values) if this tensor is materially wrong."""
        entry = self.tracer.entry_of(tensor)
        found = self.twins.get(entry.cdata) if entry is not None else None
        if found is None or found[0] is not entry:
            return None
        shadow = found[1]
        right = shadow.values.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        actual = double(tensor.detach())
        scale = max(float(right.abs().max()), float(actual.abs().max()))
        gap = float((right - actual).abs().max())
        tolerance = TOLERANCE.get(tensor.dtype, 0.01)
        if (
            shadow.evidence is None
            or not right.isfinite().all()
            or gap <= IMMATERIAL
            or gap <= tolerance * scale
        ):
            return None
        return shadow.evidence, right

    def forget(self) -> None:
        """At the end of a step: drop the twins of storages that are gone."""
        for key in [k for k, (entry, _) in self.twins.items() if entry.expired()]:
            del self.twins[key]
        self._forget_true_values()


def _is_same(written: Ref, ref: Ref) -> bool:
    """Whether an operation wrote these very elements."""
    return (written.shape, written.stride, written.offset) == (ref.shape, ref.stride, ref.offset)


def _differs(wide: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether any element is off by more than rounding explains."""
    gap = (wide - double(actual)).abs()
    tiny = torch.finfo(actual.dtype).tiny
    return bool((gap > tiny + ROUNDING.get(actual.dtype, 1e-3) * wide.abs()).any())
