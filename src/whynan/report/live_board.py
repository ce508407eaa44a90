"""A training that is watched, in a TensorBoard writer while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from whynan import voice
from whynan.model import Diagnosis, HistoryRow, LayerSpread
from whynan.report import tensorboard

ROWS_EVERY = 50  # steps: one look at the history, which takes long to make, for all of them
SELDOM = 500  # the same for `whynan run`; the history holds 512 rows
SLOW_S = 10.0  # time for that many steps in which all of their rows cost nothing to speak of
OF_QUICK_STEPS = 10  # else one row in ten
HISTOGRAMS_EVERY = 500
FIRST = 5
POWERS_OF_TEN = {10**n for n in range(1, 12)}


class LiveBoard:
    """Called after every step; writes seldom."""

    def __init__(
        self,
        writer: Any,
        spreads: Callable[[], Iterable[LayerSpread]],
        history: Callable[[], tuple[HistoryRow, ...]],
        rows_every: int = ROWS_EVERY,
    ) -> None:
        self._writer = writer
        self._spreads = spreads
        self._history = history
        self._rows_every = rows_every
        self._sent = -1
        self._began_s = time.monotonic()
        self._reported = 0
        self._broken = False

    def step(self, step: int) -> None:
        """`step` steps are done."""
        if step % self._rows_every == 0:
            self._try(lambda: self._send(self._thinning()))
        if _is_drawn(step - 1):
            self._try(lambda: tensorboard.send_spreads(self._spreads(), step - 1, self._writer))

    def flush(self) -> None:
        """Every row that was not sent yet."""
        self._try(self._send)

    def report(self, diagnosis: Diagnosis) -> None:
        """What was found since the last time, at its step."""
        new, self._reported = diagnosis.anomalies[self._reported :], len(diagnosis.anomalies)
        self._try(lambda: tensorboard.send_reports(replace(diagnosis, anomalies=new), self._writer))

    def _try(self, write: Callable[[], None]) -> None:
        """A full disk or a closed writer must not end the training."""
        if self._broken:
            return
        try:
            write()
        except Exception as error:
            self._broken = True
            voice.say(f"TensorBoard gets nothing more: {error!r}")

    def _thinning(self) -> int:
        """Which rows to send, so that the loop does not become slower: each, or one in several."""
        began_s, self._began_s = self._began_s, time.monotonic()
        is_slow = self._began_s - began_s > SLOW_S
        return 1 if is_slow or self._rows_every < SELDOM else OF_QUICK_STEPS

    def _send(self, every: int = 1) -> None:
        new = tuple(row for row in self._history() if row.step > self._sent)
        if new:
            self._sent = new[-1].step
            tensorboard.send_rows(new[::every], self._writer)


def _is_drawn(step: int) -> bool:
    """The steps that are recorded as they happen, which are slow anyway, and a few more."""
    return step < FIRST or step % HISTOGRAMS_EVERY == 0 or step in POWERS_OF_TEN
