"""The last steps in numbers: a ring that feeds causes and plots."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from whynan.model import HistoryRow
from whynan.record.optimizer_sink import HISTORY_ROWS


class History:
    """One row for each step, as cheap as the numbers that the guard has anyway."""

    def __init__(self) -> None:
        self.rows: deque[HistoryRow] = deque(maxlen=HISTORY_ROWS)
        self.total = 0.0
        self._norms: list[float] = []

    def gradients(self, norms: list[float]) -> None:
        self._norms = norms
        self.total = sum(n * n for n in norms) ** 0.5 if norms else 0.0

    def row(
        self,
        step: int,
        losses: Sequence[float],
        lr: float | None,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.rows.append(
            HistoryRow(
                step=step,
                loss=losses[-1] if losses else None,
                grad_max=max(self._norms, default=None),
                grad_norm=self.total if self._norms else None,
                lr=lr,
            )
        )
