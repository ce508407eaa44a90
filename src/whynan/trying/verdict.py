"""What happened when a changed program was run: verified, failed, and the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Literal

from whynan.model import Anomaly, Diagnosis, HistoryRow, number
from whynan.trying.trial import Ran

MARGIN_STEPS = 20
TRAINING_MARGIN_STEPS = 100  # a slower course may meet the same end later
MOST_MOVED = 1e-2  # a bound that is only for the singular point leaves ordinary losses alone
HALF_MOVED = 1e-1  # the same for another order of roundings in half precision
LEAP = 1e4  # times the largest loss before: no floor or ceiling of a guard costs that much
STAYS = 1e2  # times the largest loss before, for most of the steps that follow
NO_NUMBER = 1e9  # as LEAP, for a loss that may be right: of odd data, or by the same mathematics
STEEP = 1e5  # times the largest gradient before
LAST = 5  # losses that tell where a run is heading
ROSE = 2.0  # times the first loss
LEARNT = 0.8  # of the first loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`uncovered` is the next anomaly, when the change got past the first one; `is_weak` a training that
    got on, but learnt next to nothing."""

    verdict: Literal["verified", "failed", "not_tried"]
    evidence: str
    uncovered: Anomaly | None = None
    is_weak: bool = False


def steps_to_run(failed_at: int, *, margin: int = MARGIN_STEPS) -> int:
    """Past the failing step by 20 more steps or as many again, whichever is more."""
    return failed_at + 1 + max(margin, failed_at)


def judge(
    ran: Ran,
    before: Diagnosis,
    *,
    exact: bool = False,
    bound: bool = False,
    training: bool = False,
) -> Verdict:
    """Compare the run of a changed program with the run that failed.

    The same mathematics (`exact`) cannot hide a failure; a guard can, by a gradient of 0. A
    `bound` is meant for values near the singular point, and must leave the others alone. A
    change of the `training` must not merely put the failure off.
    """
    first = before.anomalies[0]
    after = ran.diagnosis
    if ran.timed_out:
        return Verdict(verdict="failed", evidence=f"not finished within {ran.seconds:.0f} s")
    if after is None:
        return Verdict(verdict="failed", evidence=f"the changed program ended: {ran.last_error}")
    if after.anomalies:
        return _still_ill(after.anomalies[0], first, after)
    if after.outcome == "crashed":
        return Verdict(verdict="failed", evidence=f"the changed program raised {ran.last_error}")
    step = first.evidence.step
    moved = _moved(before.history, {row.step: row.loss for row in after.history}, step)
    half = first.origin.dtype in ("float16", "bfloat16")
    most = HALF_MOVED if half and exact else MOST_MOVED
    if (bound or exact) and moved is not None and moved[1] > most:
        text = f"it changes ordinary values: losses before the failure change by up to {moved[1]:.0e}, relative to their size"
        return Verdict(verdict="failed", evidence=text)
    stuck = None if exact else _stuck(after, before, first.evidence.step)
    if stuck is not None:
        text = f"every gradient is 0 from step {stuck} on: the failure is only hidden"
        return Verdict(verdict="failed", evidence=text)
    if training and (rise := _rise(after)) is not None:
        text = f"the loss rises from {number(rise[0])} to {number(rise[1])}: nothing is learnt that way"
        return Verdict(verdict="failed", evidence=text)
    worse = _worse(after, before) if first.origin.phase == "optimizer" and not training else None
    if worse is not None:
        text = f"the updates are finite, but wrong: the loss went from {number(worse[0])} to {number(worse[1])}"
        return Verdict(verdict="failed", evidence=text)
    leap = _leap(after, before, exact)
    if leap is not None:
        text = (
            f"the loss leaps to {number(leap.loss)} at step {leap.step}: the failure is only hidden"
        )
        return Verdict(verdict="failed", evidence=text)
    steep = None if exact or training else _steep(after, before)
    if steep is not None:
        text = f"the gradient leaps to {number(steep.grad_max or 0.0)} at step {steep.step}: the failure is only hidden"
        return Verdict(verdict="failed", evidence=text)
    weak = training and _stands_still(_finite_losses(after))
    return Verdict(verdict="verified", evidence=_proof(after, before, training), is_weak=weak)


def _still_ill(now: Anomaly, first: Anomaly, after: Diagnosis) -> Verdict:
    origin = now.origin
    where = f"{origin.site.line}" if origin.site else "?"
    text = f"step {origin.step}, line {where}: {now.finding.headline}"
    if _same(now, first) or origin.step < first.origin.step:
        return Verdict(verdict="failed", evidence=f"the failure is still there: {text}")
    return Verdict(verdict="failed", evidence=f"another failure came up: {text}", uncovered=now)


def _same(now: Anomaly, first: Anomaly) -> bool:
    """The same operation on the same line, whose text or number the change may have moved."""
    if (now.finding.mechanism, now.origin.op) != (first.finding.mechanism, first.origin.op):
        return False
    here, there = now.origin.site, first.origin.site
    if here is None or there is None:
        return here is there
    if here.source != there.source and here.line != there.line:
        return False
    # A second fault may stand on the same line: then its expression was there from the start.
    other = here.expression != there.expression and here.expression in there.source
    return not (other and here.expression)


def _stuck(after: Diagnosis, before: Diagnosis, step: int) -> int | None:
    """The step from which on nothing is learnt any more."""
    later = [row for row in after.history if row.step >= step]
    idle = list(takewhile(lambda row: row.grad_max == 0, reversed(later)))
    earlier = [row.grad_max for row in before.history if row.step < step]
    if not idle:
        return None
    if len(idle) == len(later):
        # A frozen model learnt nothing before it either; one empty batch has nothing to teach.
        frozen = bool(earlier) and all(g == 0 for g in earlier)
        once = len(later) == 1 and any(row.grad_max for row in after.history)
        return None if frozen or once else idle[-1].step
    done = any(row.loss == 0 for row in idle)
    most = 2 * len(idle) > len(later)
    return idle[-1].step if most and not done and 0 not in earlier else None


def _leap(after: Diagnosis, before: Diagnosis, exact: bool) -> HistoryRow | None:
    """A loss from the failing step on that is finite only by name, measured by those before."""
    first = before.anomalies[0]
    later = [r for r in _with_finite_loss(after) if r.step >= first.evidence.step]
    here = [r for r in later if r.step == first.evidence.step]
    usual = [_size(r) for r in _with_finite_loss(before)]
    if first.origin.phase in ("backward", "optimizer"):
        usual += map(_size, here)  # the loss was not what failed
    scale = max([1.0, *usual])
    if exact or not usual:
        return next((r for r in here if _size(r) > NO_NUMBER * scale), None)
    highest = max(later, key=_size, default=None)
    if highest is None:
        return None
    if median(map(_size, later)) > STAYS * scale:
        return highest
    # A batch with an outlier has a loss to match; the others must be as they were.
    odd = any(cause.code == "bad_data" for cause in first.finding.causes)
    limit = NO_NUMBER if odd else LEAP
    return highest if _size(highest) > limit * scale else None


def _steep(after: Diagnosis, before: Diagnosis) -> HistoryRow | None:
    """A gradient of 1 over the size of a floor: finite, and as harmful as the one before."""
    step = before.anomalies[0].evidence.step
    earlier = [
        row.grad_max for row in before.history if row.step < step and row.grad_max is not None
    ]
    if not earlier:
        return None
    limit = STEEP * max([1.0, *earlier])
    return next((r for r in after.history if r.step >= step and (r.grad_max or 0) > limit), None)


def _rise(after: Diagnosis) -> tuple[float, float] | None:
    """A loss that ends above where it began: nothing was learnt. From where, and to where."""
    losses = _finite_losses(after)
    if len(losses) < LAST or not losses[0] > 0:
        return None
    start = losses[0]
    higher = len(losses) >= 4 * LAST and median(losses[-LAST:]) > start
    return (start, losses[-1]) if higher or min(losses[-LAST:]) > ROSE * start else None


def _stands_still(losses: list[float]) -> bool:
    return len(losses) >= 4 * LAST and median(losses[-2 * LAST :]) > LEARNT * losses[0] > 0


def _worse(after: Diagnosis, before: Diagnosis) -> tuple[float, float] | None:
    """A loss that is far above all that were before a failing update, and stays there."""
    step = before.anomalies[0].evidence.step
    earlier = [_size(r) for r in _with_finite_loss(after) if r.step <= step][-LAST:]
    later = [_size(r) for r in _with_finite_loss(after) if r.step > step][-LAST:]
    if len(earlier) < LAST or len(later) < LAST or min(later) <= ROSE * max(earlier):
        return None
    return earlier[-1], later[-1]


def _with_finite_loss(run: Diagnosis) -> list[HistoryRow]:
    return [r for r in run.history if r.loss is not None and math.isfinite(r.loss)]


def _finite_losses(run: Diagnosis) -> list[float]:
    return [r.loss for r in _with_finite_loss(run) if r.loss is not None]


def _size(row: HistoryRow) -> float:
    return abs(row.loss or 0.0)


def _proof(after: Diagnosis, before: Diagnosis, training: bool) -> str:
    step = before.anomalies[0].origin.step
    parts = []
    if after.steps:
        parts.append(f"{after.steps} steps run, past step {step}, without harm")
    else:
        parts.append("run to its end without harm")
    losses = {row.step: row.loss for row in after.history}
    course = _finite_losses(after)
    if training and len(course) > 1:
        parts.append(f"the loss went from {number(course[0])} to {number(course[-1])}")
        return "; ".join(parts)
    here = losses.get(before.anomalies[0].evidence.step)
    if here is not None and math.isfinite(here):
        parts.append(f"loss at that step {number(here)}")
    moved = _moved(before.history, losses, before.anomalies[0].evidence.step)
    if moved is not None:
        count, most = moved
        earlier, whose = f"the {count} losses before it", "their"
        if count == 1:
            earlier, whose = "the loss before it", "its"
        how = (
            "unchanged" if most == 0 else f"changed by at most {most:.0e}, relative to {whose} size"
        )
        parts.append(f"{earlier} {how}")
    return "; ".join(parts)


def _moved(
    history: tuple[HistoryRow, ...], after: dict[int, float | None], failed_at: int
) -> tuple[int, float] | None:
    """How far the losses before the failing step moved, relative to their size."""
    pairs = [(row.loss, after.get(row.step)) for row in history if row.step < failed_at]
    known = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a)]
    if not known:
        return None
    usual = max(median(abs(a) for a, _ in known), 1e-12)  # a loss near 0 is no measure
    return len(known), max(abs(a - b) / max(abs(a), usual) for a, b in known)
