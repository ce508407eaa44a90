"""The same program in float64 with the same random numbers: what a guard has to come close to."""

from __future__ import annotations

import math
from statistics import median

from whynan.model import Anomaly, Diagnosis, HistoryRow, number
from whynan.trying.trial import Ran

# Failures that more digits prevent; elsewhere float64 fails as well, and there is nothing to compare.
OF_PRECISION = frozenset(
    {"underflow", "low_precision", "saturation", "cancellation", "eps_too_small", "wrong_function"}
)
SAME = 1e-2  # of the losses before the failure: then it is the same run
NEAR = 5e-2  # of the losses from the failing step on
COMPARED = 3  # steps from the failing one on; later the two runs take their own ways
SETTLED = 0.2  # of the loss, between steps of a length and of half of it
ABSURD = 1e4  # times the losses before: float64 holds it, but it is no measure


def is_wanted(anomaly: Anomaly) -> bool:
    codes = {cause.code for cause in anomaly.finding.causes}
    if anomaly.origin.phase == "optimizer":
        return False  # another eps takes another course, which is the point
    wide = anomaly.origin.exact is not None and math.isfinite(anomaly.origin.exact)
    overflowed = anomaly.finding.mechanism == "overflow" and wide
    return (bool(codes & OF_PRECISION) or overflowed) and not codes & {
        "constant_input",
        "empty_mask",
    }


def losses(ran: Ran, before: Diagnosis) -> dict[int, float] | None:
    """Step by step from the failing one on; None if the run is no reference."""
    after, failed_at = ran.diagnosis, before.anomalies[0].evidence.step
    if after is None or after.anomalies or after.outcome == "crashed":
        return None
    course = {r.step: r.loss for r in after.history if r.loss is not None}
    if not all(map(math.isfinite, course.values())):
        return None
    known = [r for r in before.history if r.step < failed_at and is_finite(r)]
    scale = _scale([r.loss for r in known if r.loss is not None])
    for row in known:
        there = course.get(row.step)
        if there is None or abs(there - (row.loss or 0.0)) > SAME * max(abs(there), scale):
            return None  # other random numbers, or it lives on its rounding errors
    later = {s: x for s, x in course.items() if failed_at <= s < failed_at + COMPARED}
    if not later or max(map(abs, later.values())) > ABSURD * max(1.0, scale):
        return None
    return later


def away(after: Diagnosis, reference: dict[int, float]) -> str | None:
    """In which step the changed program leaves the reference, in a sentence."""
    scale = _scale(list(reference.values()))
    for row in after.history:
        there = reference.get(row.step)
        if there is None or row.loss is None:
            continue
        if abs(row.loss - there) > NEAR * max(abs(there), scale):
            return (
                f"finite, but not right: its loss at step {row.step} is {number(row.loss)}, "
                f"where float64 gives {number(there)}"
            )
    return None


def unsettled(here: Diagnosis | None, finer: Diagnosis | None, failed_at: int) -> str | None:
    """Whether an integration with steps of half the length comes to another loss, in a sentence."""
    if here is None or finer is None or finer.anomalies:
        return "with steps of half the length it failed"
    halved = {r.step: r.loss for r in finer.history if is_finite(r)}
    for row in here.history[failed_at : failed_at + COMPARED]:
        there = halved.get(row.step)
        if there is None or row.loss is None:
            continue
        if abs(row.loss - there) > SETTLED * max(abs(there), abs(row.loss)):
            return (
                f"finite, but not right yet: its loss at step {row.step} is {number(row.loss)}, "
                f"with steps of half the length {number(there)}"
            )
    return None


def is_finite(row: HistoryRow) -> bool:
    return row.loss is not None and math.isfinite(row.loss)


def _scale(known: list[float]) -> float:
    return median(map(abs, known)) if known else 0.0
