"""Fewer rows, columns and tensors, as long as the same failure shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import torch

from whynan.repro.case import Case, Slot, Step, run, width

Axis = tuple[int, int]  # a tensor and one of its dimensions
MOST_TRIES = 400  # for one group of dimensions
MOST_CHOICES = 16  # of one dimension of each tensor


class Search:
    """Asks of each smaller case whether it still shows what the first one did, until time is over."""

    def __init__(self, case: Case, *, budget_s: float) -> None:
        first = run(case)
        assert first is not None
        self.case = case
        self.first = first
        self.wide = width(case)
        self.tries = 0
        self._end_s = time.monotonic() + budget_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end_s

    def shows(self, case: Case) -> bool:
        """Whether this is the same failure: also in float64, so that one of rounding is not taken for
        one of mathematics."""
        self.tries += 1
        shown = run(case)
        if shown is None or not shown.is_as(self.first):
            return False
        return self.first.kind == "raised" or width(case) == self.wide

    def take(self, case: Case) -> bool:
        """Go on with it if it shows."""
        if self.is_over or not self.shows(case):
            return False
        self.case = case
        return True


def shrink(search: Search) -> None:
    """Tensors of lists first, then dimensions, the longest first; again while it helps."""
    _shorten_lists(search)
    before = -1
    while before != (now := _size(search.case)) and not search.is_over:
        before = now
        for length in sorted({n for t in search.case.tensors for n in t.shape if n > 1})[::-1]:
            for axes in _groups(search.case, length):
                if all(search.case.tensors[i].shape[d] == length for i, d in axes):
                    _cut(search, axes, length)
    _drop_unused(search)


def _size(case: Case) -> int:
    return sum(t.numel() for t in case.tensors)


def _groups(case: Case, length: int) -> Iterator[list[Axis]]:
    """Dimensions of one length that may be the same one: all; those at the same distance from either
    end; one of each tensor; each for itself."""
    axes = [(i, d) for i, t in enumerate(case.tensors) for d, n in enumerate(t.shape) if n == length]  # fmt: skip
    seen: set[tuple[Axis, ...]] = set()
    ways: list[Callable[[Axis], Any]] = [
        lambda axis: 0,
        lambda axis: axis[1],
        lambda axis: case.tensors[axis[0]].dim() - axis[1],
    ]
    groups = [
        tuple(axis for axis in axes if way(axis) == key)
        for way in ways
        for key in sorted({way(axis) for axis in axes})
    ]
    each = [[axis for axis in axes if axis[0] == i] for i in sorted({i for i, _ in axes})]
    groups += [*islice(product(*each), MOST_CHOICES), *((axis,) for axis in axes)]
    for group in groups:
        if group not in seen:
            seen.add(group)
            yield list(group)


def _cut(search: Search, axes: list[Axis], length: int) -> None:
    """Delta debugging on the places along these dimensions."""
    places = list(range(length))
    tries = search.tries + MOST_TRIES
    for likely in _likely(search, length):
        if _keep(search, axes, places, [likely]):
            return
    pieces = 2
    while len(places) > 1 and not search.is_over and search.tries < tries:
        size = max(1, len(places) // pieces)
        parts = [places[i : i + size] for i in range(0, len(places), size)]
        for part in [*parts, *([p for p in places if p not in q] for q in parts)]:
            if 0 < len(part) < len(places) and _keep(search, axes, places, part):
                places, pieces = list(range(len(part))), 2
                break
        else:
            if size == 1:
                return
            pieces = min(2 * pieces, len(places))


def _likely(search: Search, length: int) -> list[int]:
    """The places of the first bad value, along dimensions of that length."""
    shown = run(search.case)
    if shown is None or shown.value is None or not shown.value.dim():
        return []
    bad = (~torch.isfinite(_plain(shown.value))).nonzero()
    found = [int(p) for p, n in zip(bad[0], shown.value.shape, strict=True) if n == length] if len(bad) else []  # fmt: skip
    return list(dict.fromkeys(found))


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.detach() if value.element_size() > 1 else value.detach().float()


def _keep(search: Search, axes: list[Axis], places: list[int], part: Sequence[int]) -> bool:
    tensors = list(search.case.tensors)
    chosen = torch.tensor(list(part))
    for i, d in axes:
        tensors[i] = tensors[i].index_select(d, chosen)
    smaller = search.case.with_tensors(tensors)
    if smaller.strides:
        smaller = replace(smaller, strides={k: tuple(tensors[k].stride()) for k in smaller.strides})
    if search.take(smaller):
        return True
    # A length may stand among the arguments as well: `normalized_shape=[64]`.
    counted = [_with_length(step, len(places), len(part)) for step in smaller.steps]
    return counted != smaller.steps and search.take(replace(smaller, steps=counted))


def _with_length(step: Step, old: int, new: int) -> Step:
    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(item) for item in value]
        return new if type(value) is int and value == old else value

    return Step(step.op, [changed(a) for a in step.args], {k: changed(v) for k, v in step.kwargs.items()})  # fmt: skip


def _shorten_lists(search: Search) -> None:
    """Of an update of many tensors, the one that failed."""
    step = search.case.steps[-1]
    lengths = {len(a) for a in (*step.args, *step.kwargs.values()) if _is_list(a)}
    if len(lengths) != 1 or (length := lengths.pop()) < 2 or len(search.case.steps) > 1:
        return
    likely = search.case.output % length
    for place in [likely, *(i for i in range(length) if i != likely)]:
        one = Step(step.op, [_only(a, place, length) for a in step.args], {k: _only(a, place, length) for k, a in step.kwargs.items()})  # fmt: skip
        if search.take(replace(search.case, steps=[one], output=search.case.output // length)):
            return
        if search.is_over:
            return


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, Slot) for item in value)


def _only(value: Any, place: int, length: int) -> Any:
    numbers = isinstance(value, list) and all(isinstance(v, (int, float)) for v in value)
    if isinstance(value, list) and len(value) == length and (_is_list(value) or numbers):
        return [value[place]]
    return value


def _drop_unused(search: Search) -> None:
    """Tensors that no call reads any more; an optional one that does not matter."""
    case = search.case
    for at, step in enumerate(case.steps):
        for place, value in enumerate(step.args):
            if isinstance(value, Slot):
                fewer = Step(step.op, [*step.args[:place], None, *step.args[place + 1 :]], step.kwargs)  # fmt: skip
                steps = [*search.case.steps]
                steps[at] = fewer
                if search.take(replace(search.case, steps=steps)):
                    step = fewer
