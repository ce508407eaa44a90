"""A training that is watched, in the program's own TensorBoard writer while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from whynan.model import Diagnosis, HistoryRow
from whynan.report import tensorboard

ROWS_EVERY = 50  # steps: one look at the history, which takes long to make, for all of them
HISTOGRAMS_EVERY = 500
MOST_LAYERS = 50
MOST_VALUES = 1 << 16  # of one layer, evenly spread


class LiveBoard:
    """Called after every step; writes seldom."""

    def __init__(
        self, writer: Any, models: list[Any], history: Callable[[], tuple[HistoryRow, ...]]
    ) -> None:
        self._writer = writer
        self._models = models
        self._history = history
        self._sent = -1
        self._reported = 0
        self._broken = False

    def step(self, step: int) -> None:
        """`step` steps are done."""
        if step % ROWS_EVERY == 0:
            self.flush()
        if step == 1 or step % HISTOGRAMS_EVERY == 0:
            self._try(lambda: self._histograms(step - 1))

    def flush(self) -> None:
        """Every row that was not sent yet."""
        self._try(self._send)

    def report(self, diagnosis: Diagnosis) -> None:
        """What was found since the last time, at its step."""
        new, self._reported = diagnosis.anomalies[self._reported :], len(diagnosis.anomalies)
        self._try(lambda: tensorboard.send_reports(new, self._writer))

    def _try(self, write: Callable[[], None]) -> None:
        """A full disk or a closed writer must not end the training."""
        if self._broken:
            return
        try:
            write()
        except Exception as error:
            self._broken = True
            print(f"whynan: TensorBoard gets nothing more: {error!r}", file=sys.stderr)

    def _send(self) -> None:
        new = tuple(row for row in self._history() if row.step > self._sent)
        if new:
            self._sent = new[-1].step
            tensorboard.send_rows(new, self._writer)

    def _histograms(self, step: int) -> None:
        named = [p for model in self._models for p in model.named_parameters()]
        for name, parameter in named[:MOST_LAYERS]:
            self._histogram(f"whynan.weights/{name}", parameter, step)
            if parameter.grad is not None:
                self._histogram(f"whynan.gradients/{name}", parameter.grad, step)

    def _histogram(self, tag: str, tensor: Any, step: int) -> None:
        flat = tensor.detach().float().reshape(-1)
        flat = flat[:: flat.numel() // MOST_VALUES + 1].cpu()
        finite = flat[flat.isfinite()]  # TensorBoard refuses the others
        if finite.numel():
            self._writer.add_histogram(tag, finite, step)
