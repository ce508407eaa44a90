"""The last steps in numbers, and some of those before: what feeds causes and plots."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

import torch

from whynan.model import HistoryRow
from whynan.seam.reading import readable
from whynan.seam.stats import norms
from whynan.watching.layers import named

HISTORY_ROWS = 512
FIRST, EVERY = 5, 50
MAX_SAMPLES = 200
MAX_LAYERS = 200
HEAD = 1024  # weights of each parameter that stand for all of them
# step, loss, largest and total gradient, learning rate, scale: a HistoryRow takes long to make
_Row = tuple[int, float | None, float | None, float | None, float | None, float | None]


T = TypeVar("T")


class _Thinned(Generic[T]):
    """A long past in few entries: when there are too many, every second one goes."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, T]] = []
        self._every = EVERY

    def add(self, step: int, entry: T) -> None:
        """A step out of turn, the one that failed, is always kept."""
        if not step % EVERY and step % self._every:
            return
        self.entries.append((step, entry))
        if len(self.entries) > MAX_SAMPLES:
            self._every *= 2
            self.entries = [e for e in self.entries if e[0] < FIRST or not e[0] % self._every]


class History:
    """One row for each step, as cheap as the numbers that the guard has anyway."""

    def __init__(self) -> None:
        self._rows: deque[_Row] = deque(maxlen=HISTORY_ROWS)
        self._older: _Thinned[_Row] = _Thinned()  # those that left the ring
        self.total = 0.0
        self.norms: list[float] = []
        self._layers: _Thinned[dict[str, tuple[float, float]]] = _Thinned()
        self._names: dict[int, str] = {}
        self._ratios: _Thinned[float] = _Thinned()
        self._watched: list[tuple[torch.Tensor, torch.Tensor]] = []

    def is_sampled(self, step: int) -> bool:
        """Whether this step's magnitudes are kept for each layer; one in fifty, and the first."""
        return step < FIRST or step % EVERY == 0

    def sample(
        self, step: int, optimizer: torch.optim.Optimizer, roots: Iterable[torch.nn.Module],
        *, measures: bool = True,
    ) -> None:  # fmt: skip
        """The size of each parameter and of its gradient. An update with a closure is no measure of
        the rate: it searches, and its gradients are those of several places."""
        chosen = [
            (p, weights, gradient)
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None and p.grad.layout is torch.strided and p.is_floating_point()
            if (weights := readable(p)) is not None
            if (gradient := readable(p.grad)) is not None
        ][:MAX_LAYERS]
        if any(id(p) not in self._names for p, _, _ in chosen):
            self._names = {id(p): n for n, p in named(roots, [optimizer])}
        found = norms([g for _, _, g in chosen] + [w for _, w, _ in chosen])  # one wait on a device
        pairs = zip(found[: len(chosen)], found[len(chosen) :], strict=True)
        names = [self._names[id(p)] for p, _, _ in chosen]
        self._layers.add(step, dict(zip(names, pairs, strict=True)))
        self._watched = [(w, _head(w).clone()) for _, w, _ in chosen] if measures else []

    @property
    def is_measuring(self) -> bool:
        return bool(self._watched)

    def measure_update(self, step: int) -> None:
        """How far the update moved the weights that were noted before it."""
        watched, self._watched = self._watched, []
        if not self.is_sampled(step):
            return
        befores = [before for _, before in watched]
        found = norms([_head(p) - before for p, before in watched] + befores)
        size = math.hypot(*found[len(watched) :])
        if size > 0:
            self._ratios.add(step, math.hypot(*found[: len(watched)]) / size)

    def with_layers(self, rows: Iterable[HistoryRow]) -> tuple[HistoryRow, ...]:
        """The rows, with the layers' magnitudes where they were kept."""
        layers: dict[int, dict[str, tuple[float, float]]] = {}
        for step, found in self._layers.entries:
            layers.setdefault(step, {}).update(found)
        ratios = dict(self._ratios.entries)
        return tuple(
            replace(r, layers=layers.get(r.step), update_ratio=ratios.get(r.step)) for r in rows
        )

    def gradients(self, sizes: list[float]) -> None:
        self.norms = sizes
        self.total = math.hypot(*sizes)

    def row(self, step: int, loss: float | None, lr: float | None, scale: float | None) -> None:
        largest, total = (max(self.norms), self.total) if self.norms else (None, None)
        if len(self._rows) == HISTORY_ROWS and self.is_sampled(self._rows[0][0]):
            self._older.add(self._rows[0][0], self._rows[0])
        self._rows.append((step, loss, largest, total, lr, scale))

    def rows(self) -> list[HistoryRow]:
        return [
            HistoryRow(step=step, loss=loss, grad_max=largest, grad_norm=total, lr=lr, scale=scale)
            for step, loss, largest, total, lr, scale in (
                *(row for _, row in self._older.entries),
                *self._rows,
            )
        ]


def _head(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.reshape(-1)[:HEAD] if parameter.is_contiguous() else parameter
