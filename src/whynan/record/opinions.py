"""The origin computed once more in other ways: is it the mathematics, the type, or the kernel?

A kernel is accused only where another implementation in the same precision is finite and agrees with
float64, where no intermediate value comes near the end of the type's range, and where operands that
differ by rounding only would give the same: there, any correct kernel is finite.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from whynan.model.opinions import Judgement, Opinion, Opinions
from whynan.ops.table import LISTS, kernel
from whynan.record.keeping_range import Range, Seen
from whynan.record.others import Way, named, ways
from whynan.record.reads import value_after
from whynan.record.recompute import (
    Call,
    Change,
    call_of,
    copied,
    in_float64,
    is_repeatable,
    run_again,
    widened,
)
from whynan.record.records import Record
from whynan.record.storages import Index, Ref
from whynan.seam.devices import double
from whynan.seam.kernels import capability

MAX_NUMEL = 1 << 22  # of all operands together
MOST_S = 2.0
AGREES = {torch.float16: 0.02, torch.bfloat16: 0.1, torch.float32: 1e-3, torch.float64: 1e-6}
SAME_SIZE = 1.0  # of differences that are all rounding, divided by their spread
ULPS = 8  # by which operands are disturbed
STEADY = 0.05  # how far that may move a result, relative to the largest
FLOAT32_MAX = torch.finfo(torch.float32).max
MASKS = ("attn_mask", "attn_bias")  # whose infinities are meant
NOT_YET = "momentum_buffer_list"  # memory that the first step only writes to
AGAIN = "the same kernel once more"
WIDE = "in float64"


def opinions_of(record: Record, k: int, index: Index | None) -> Opinions | None:
    """None: there is no other way, or what it was computed from is not there any more."""
    actual = value_after(record, k) if k < len(record.outs) else None
    if actual is None or not actual.dtype.is_floating_point or not _suits(record):
        return None
    bad = ~actual.isfinite()
    call = _operands(record)
    if call is None or not bad.any() or not _is_sound(record, call, actual.dtype):
        return None
    numel = sum(tensor.numel() for _, tensor in _tensors(call))
    if numel > MAX_NUMEL:
        return untried(record, f"it has {numel:,} values in its operands, more than {MAX_NUMEL:,}")
    with _alone(actual.device):
        return _Hearing(record, k, index, actual, bad).judge()


def untried(record: Record, why: str) -> Opinions:
    return Opinions(judgement="untried", kernel=record.info.name, device="", bad=0, why=why)


def _suits(record: Record) -> bool:
    info = record.info
    does = info.row.does
    quiet = not (
        info.entry
        or info.exchanges
        or info.allocates
        or info.view
        or info.overwrites
        or "fills" in does
    )
    return quiet and not draws(record) and record.raised is None and not record.kwargs.get("out")


def draws(record: Record) -> bool:
    """Whether it draws random numbers; an attention kernel does only for its dropout."""
    names = record.info.arg_names
    given = dict(zip(names, record.args, strict=False)) | dict(record.kwargs)
    dropout = "dropout_p" in names and not given.get("dropout_p")
    return record.info.random and not dropout


def _operands(record: Record, change: Change = copied) -> Call | None:
    """What it was called with; zeros for memory that a first step is to write and does not read."""
    names = dict(zip(record.info.arg_names, record.args, strict=False)) | dict(record.kwargs)
    unread = names.get(NOT_YET, ()) if names.get("is_first_step") else ()

    def zeros(ref: Ref) -> Tensor | None:
        held = ref.tensor() if any(ref is other for other in unread) else None
        return None if held is None else torch.zeros_like(held)

    return call_of(record, change, zeros)


def _tensors(call: Call) -> Iterator[tuple[Any, Tensor]]:
    for name, arg in (*enumerate(call.args), *call.kwargs.items()):
        for item in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(item, Tensor):
                yield name, item


def _name(names: list[str], place: Any) -> str:
    return names[place] if isinstance(place, int) else str(place)


def _is_sound(record: Record, call: Call, dtype: torch.dtype) -> bool:
    """Operands from which any correct kernel computes the same: finite in the result's type, but for
    the infinities of a mask; some, but not too many. What an operation makes of nothing, or of an
    infinity, is a matter of definition, in which implementations differ."""
    limits = torch.finfo(dtype)
    if any(not _is_ordinary(number, limits) for number in _numbers(call)):
        return False
    names, together = record.info.arg_names, 1.0
    for place, tensor in _tensors(call):
        together *= max(1.0, largest(tensor))
        if tensor.is_complex() or tensor.layout is not torch.strided or not tensor.numel():
            return False
        if tensor.is_floating_point() and not tensor.isfinite().all():
            masks = _name(names, place) in MASKS and bool((tensor < torch.inf).all())
            if not masks:
                return False
        if largest(tensor) > limits.max:
            return False
    # A derivative's formula multiplies them: each may fit, and what comes in between not.
    return not record.derived or together <= limits.max


def _numbers(call: Call) -> Iterator[float]:
    """Operands that are plain numbers: `2` and `inf` of `x * 2`, `x * inf`."""
    for arg in (*call.args, *call.kwargs.values()):
        for item in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(item, (int, float)):
                yield item


def _is_ordinary(number: float, limits: torch.finfo) -> bool:
    return number == 0 or limits.tiny * limits.eps <= abs(number) <= limits.max


@contextmanager
def _alone(device: torch.device) -> Iterator[None]:
    """Without the program's autocast; switches are put back by whoever turns them."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def _magnitudes(value: Tensor) -> Tensor:
    return widened(value).abs() if value.is_floating_point() else value


def largest(tensor: Tensor) -> float:
    """The largest finite magnitude in it."""
    if not tensor.numel() or tensor.dtype is torch.bool:
        return float(tensor.any())
    sizes = tensor.detach().abs()
    return float(sizes.where(sizes.isfinite(), sizes.new_zeros(())).max())


class _Hearing:
    """One origin, its kernel, and whoever else can compute it."""

    def __init__(
        self, record: Record, k: int, index: Index | None, actual: Tensor, bad: Tensor
    ) -> None:
        self.record, self.k, self.index = record, k, index
        self.actual, self.bad = actual, bad
        self.asked: list[Opinion] = []
        self._end = time.monotonic() + MOST_S

    def judge(self) -> Opinions | None:
        again = self._again()
        results = [
            (way, out) for way in self._ways() if (out := self._ask(way, copied)) is not None
        ]
        if not results and again is None:
            return None
        wide, reference = self._wide([way for way, _ in results])
        for way, out in results:
            self._note(way.how, out, wide, is_setting=way.is_setting)
        finite = [(way, out) for way, out in results if self._is_finite(out)]
        judgement = self._judgement(again, finite, wide, reference)
        device = self.actual.device
        return Opinions(
            judgement=judgement,
            kernel=self.record.info.name,
            device=str(device),
            bad=int(self.bad.sum()),
            asked=tuple(self.asked),
            processor=capability() if device.type == "cpu" else "",
        )

    def _judgement(
        self,
        again: Tensor | None,
        finite: list[tuple[Way, Tensor]],
        wide: Tensor | None,
        reference: Way | None,
    ) -> Judgement:
        if wide is None or not self._is_finite(wide):
            return "mathematics"
        if again is not None and self._is_finite(again):
            steady = self._agrees(again, wide) and not self._is_delicate(wide, reference)
            return "unstable" if steady else "precision"
        right = [way for way, out in finite if self._agrees(out, wide)]
        if any(way.is_setting for way in right):
            return "setting"
        return "kernel" if right and not self._is_delicate(wide, reference) else "precision"

    # ---- who is asked ------------------------------------------------------------------------

    def _ways(self) -> Iterator[Way]:
        for way in ways(self.record, self.actual.device):
            if time.monotonic() < self._end:
                yield way

    def _again(self) -> Tensor | None:
        """The same kernel, on the same values."""
        call = _operands(self.record) if is_repeatable(self.record) else None
        outs = run_again(self.record, call) if call is not None else None
        out = outs[self.k] if outs is not None and self.k < len(outs) else None
        if out is None or out.shape != self.actual.shape:
            return None
        self._note(AGAIN, out, None)
        return out

    def _ask(self, way: Way, change: Change, seen: Seen | None = None) -> Tensor | None:
        call = _operands(self.record, change)
        if call is None:
            return None
        seen = seen or Seen()
        try:
            if way.own:
                outs = way.run(call)
            else:
                with seen:
                    outs = way.run(call)
        except Exception:  # not for these operands; then there is simply no answer
            return None
        base = self.record.info.base.removeprefix(LISTS).strip("_")
        lists = self.record.info.base.startswith(LISTS)
        if base in seen.called and not way.own and not lists:
            return None  # it calls what it is to be compared with
        if outs is not None and len(outs) > len(self.record.outs):
            outs = [t for t in outs if t is not None]  # what is not asked for is no result
        out = outs[self.k] if outs is not None and self.k < len(outs) else None
        if out is None or out.shape != self.actual.shape:
            return None
        if out.dtype != (self.actual.dtype if change is copied else torch.float64):
            return None  # by other rules of promotion: a comparison would be one of types
        return out.detach().to(self.actual.device)

    def _wide(self, candidates: list[Way]) -> tuple[Tensor | None, Way | None]:
        """In float64, by another implementation where one has that type."""
        for way in [way for way in candidates if not way.is_setting]:
            out = self._ask(way, widened)
            if out is not None:
                self._note(f"{WIDE}, {way.how}", out, None)
                return out, way
        outs = in_float64(self.record)
        out = outs[self.k] if outs is not None and self.k < len(outs) else None
        if out is not None and out.shape == self.actual.shape and out.dtype is torch.float64:
            self._note(WIDE, out, None)
            return out, None
        return None, None

    # ---- what they say -----------------------------------------------------------------------

    def _is_finite(self, out: Tensor) -> bool:
        return bool(out[self.bad].isfinite().all())

    def _apart(self, out: Tensor, wide: Tensor) -> float | None:
        here, there = double(out)[self.bad], wide[self.bad]
        if not (here.isfinite().all() and there.isfinite().all()):
            return None
        return float((here - there).abs().max()) / max(largest(wide), 1e-30)

    def _agrees(self, out: Tensor, wide: Tensor) -> bool:
        apart = self._apart(out, wide)
        limit = SAME_SIZE if self._normalises() else AGREES.get(self.actual.dtype, 0.25)
        return apart is not None and apart <= limit

    def _is_delicate(self, wide: Tensor, way: Way | None) -> bool:
        """Whether a correct kernel may come to another result, by rounding or by its order."""
        call = _operands(self.record)
        if self._squares_overflow(call):
            return True
        sizes = [largest(t) for _, t in _tensors(call) if t.is_floating_point()] if call else []
        fits = Range.of(self.actual.dtype, max(sizes, default=0.0))
        if not self._is_within(fits, way):
            return True
        out = self._by(way, self._disturbed())
        apart = self._apart(out, wide) if out is not None else None
        if apart is None:
            return True
        return apart > STEADY and not self._normalises()

    def _is_within(self, fits: Range, way: Way | None) -> bool:
        """Whether the type's range is wide enough for every value on the way, and for every sum in
        another order: held to it, the result is the same."""
        free = self._by(way, widened)
        if free is None or largest(free) > fits.most:
            return False
        if way is None or way.own:
            sizes = self._by(way, _magnitudes)
            return sizes is not None and largest(sizes) <= fits.most
        seen = Seen(fits)
        held = self._ask(way, widened, seen)
        if held is None or seen.exceeds:
            return False
        ours, theirs = free[self.bad], held[self.bad]
        tolerance = AGREES.get(self.actual.dtype, 0.25) * max(largest(free), 1e-30)
        return bool(torch.isclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True).all())

    def _disturbed(self) -> Change:
        """Operands that differ by rounding only."""
        generator = torch.Generator().manual_seed(0)
        ulps = ULPS * torch.finfo(self.actual.dtype).eps

        def disturbed(value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return value
            noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
            tiny = torch.finfo(value.dtype).tiny
            flushed = torch.where(value.abs() < tiny, 0.0, double(value))
            return flushed * (1 + ulps * (2 * noise.to(value.device) - 1))

        return disturbed

    def _normalises(self) -> bool:
        """Equal values, whose differences are all rounding, have a finite result nevertheless."""
        info = self.record.info
        row, _ = kernel(info.base)
        eps = named(self.record, Call(list(self.record.args), dict(self.record.kwargs))).get("eps")
        return "normalises" in row.does and info.base not in row.backward and bool(eps)

    def _by(self, way: Way | None, change: Change) -> Tensor | None:
        return self._ask(way, change) if way is not None else self._same(change)

    def _same(self, change: Change) -> Tensor | None:
        call = _operands(self.record, change)
        outs = run_again(self.record, call) if call is not None else None
        out = outs[self.k] if outs is not None and self.k < len(outs) else None
        return out if out is not None and out.dtype is torch.float64 else None

    def _squares_overflow(self, call: Call | None) -> bool:
        """A sum of squares, which a kernel may form on its way, would not fit."""
        wide = self.actual.dtype is torch.float64
        limit = torch.finfo(torch.float64).max if wide else FLOAT32_MAX
        names = self.record.info.arg_names
        for place, tensor in _tensors(call) if call is not None else ():
            if tensor.is_floating_point() and _name(names, place) not in MASKS:
                overflows = largest(tensor) ** 2 * max(tensor.numel(), 1) > limit
                if overflows:
                    return True
        return False

    def _note(
        self, how: str, out: Tensor, wide: Tensor | None, *, is_setting: bool = False
    ) -> None:
        index = self.index
        self.asked.append(
            Opinion(
                how=how,
                dtype=str(out.dtype).removeprefix("torch."),
                device=str(out.device),
                nonfinite=int((~out[self.bad].isfinite()).sum()),
                value=float(out[index]) if index is not None else None,
                is_setting=is_setting,
                apart=None if wide is None else self._apart(out, wide),
            )
        )
