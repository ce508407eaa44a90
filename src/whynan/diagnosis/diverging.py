"""A run that diverged: its updates were as large as the weights that they were made to.

The operation that overflowed first is only where it showed; the learning rate is what it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from whynan.model import Evidence, HistoryRow, number

OUTGREW = 0.5  # an update against all weights; a thousandth is usual
LARGE = 0.2  # enough where the loss rises by far from there on
STEEP = 10.0  # a gradient against the weights: beyond that it is the gradient that is odd
ROSE = 100.0  # times the loss of the step whose update it was
HALF = 0.5  # of the largest weight: then the updates made it what it is


def outgrown(evidence: Evidence) -> str | None:
    """The first update that was measured as large as the weights though its gradient was of a usual
    size: then it is the rate that made it large. What followed must show it."""
    rows = evidence.around.history
    for i, row in enumerate(rows):
        ratio, rate = row.update_ratio, row.lr
        if ratio is None or not rate or not math.isfinite(ratio) or ratio < LARGE:
            continue
        if ratio > STEEP * abs(rate):  # ratio = rate * gradient / weights
            return None
        if ratio < OUTGREW and not _rose(rows[i:]):
            continue
        if _rose(rows[i:]) or _explains(rows[i:], evidence):
            times = f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"
            return f"at step {row.step} the update with lr {number(rate)} was {times} as large as all weights together"
        return None
    return None


def _rose(rows: Sequence[HistoryRow]) -> bool:
    losses = [abs(r.loss) for r in rows if r.loss is not None and math.isfinite(r.loss)]
    return len(losses) > 1 and max(losses[1:]) > ROSE * losses[0] > 0


def _explains(rows: Sequence[HistoryRow], evidence: Evidence) -> bool:
    """Whether the largest weight is what these updates made of it."""
    norm = evidence.around.weight_norm
    moved = sum(abs(r.lr) * r.grad_max for r in rows if r.lr and r.grad_max is not None)
    return norm is not None and moved > HALF * norm > 0
