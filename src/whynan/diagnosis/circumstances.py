"""Causes that lie around the operation: the data, the weights, the course of the training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from whynan.diagnosis.makers import CHOOSING
from whynan.diagnosis.words import at, plural
from whynan.model import FROM_BEFORE, Cause, Evidence, HistoryRow, Operand, OpRecord, number

ROSE = 100.0  # times the lowest loss so far
GREW = 1000.0  # times the smallest gradient of the last steps
STEEP = 1.8  # growth of a gradient from one operation to the next
OVERSHOT = 0.2  # an update against the largest weight's norm; a thousandth is usual
HUGE = 1e8  # no feature of a healthy data set
DRIFTED = frozenset({"overflow", "log_nonpositive", "invalid_domain", "sqrt_negative"})


def causes_around(evidence: Evidence, mechanism: str, culprit: Operand | None) -> Iterator[Cause]:
    """What the state of the run shows, most telling first."""
    yield from _scaler(evidence)
    yield from _poisoned(evidence)
    yield from _data(evidence, mechanism, culprit)
    if mechanism == "overflow":
        yield from _initialisation(evidence)
    if mechanism in DRIFTED:
        yield from _learning_rate(evidence, culprit)
        yield from _gradients(evidence, culprit)


def _scaler(evidence: Evidence) -> Iterator[Cause]:
    if evidence.effect and evidence.effect.startswith("GradScaler"):
        yield Cause(code="loss_scale", evidence=evidence.effect)


def _poisoned(evidence: Evidence) -> Iterator[Cause]:
    source = evidence.origin.inputs[0].source if evidence.origin.inputs else None
    held = source is not None and source.startswith(("parameter", "buffer"))
    if evidence.origin_kind == "entry" and held and evidence.origin.op == "entry":
        yield Cause(code="poisoned_state", evidence=f"{source} was bad before this step began")
    whose = loaded_state(evidence)
    if whose is not None:
        yield Cause(code="poisoned_state", evidence=f"it was saved like that: {whose} was loaded")


def loaded_state(evidence: Evidence) -> str | None:
    """Of a value that came in: whether it is no data, but what an earlier run had kept."""
    first = evidence.path[0] if evidence.path else None
    if evidence.origin_kind != "entry" or first is None:
        return None
    if "load_state_dict" in (first.inside or ""):
        return "the state of the model"
    if evidence.origin.inside == "load" and first.phase == "optimizer":
        return "the state of the optimizer"
    return None


def _data(evidence: Evidence, mechanism: str, culprit: Operand | None) -> Iterator[Cause]:
    operand = evidence.origin.inputs[0] if evidence.origin.inputs else None
    if evidence.origin_kind == "number":
        return  # the operands are innocent
    if mechanism == "nonfinite_data" and operand is not None and operand.stats is not None:
        if (operand.source or "").startswith(("parameter", "buffer")) or loaded_state(evidence):
            return
        stats, index = operand.stats, operand.first or operand.index
        place = ""
        if index:
            table = len(index) == 2
            place = f" in row {index[0]}, column {index[1]}" if table else at(index)
            place = f", first{place}"
        cells = plural(stats.nonfinite, "cell")
        yield Cause(code="bad_data", evidence=f"{cells} of {stats.count:,} not finite{place}")
        return
    odd = evidence.around.oddity
    if mechanism != "overflow":
        return
    if odd is None:
        last = culprit.upstream[-1] if culprit is not None and culprit.upstream else None
        if last is not None and _comes_in(last) and abs(last.value or 0) > HUGE:
            yield Cause(code="bad_data", evidence=f"{number(last.value)} came in with the data")
        return
    column = f" of column {odd.column}" if odd.column is not None else ""
    if odd.what == "outlier":
        text = (
            f"the batch holds {number(odd.value)} in row {odd.row}{column}, "
            f"where {number(odd.typical)} is typical"
        )
    else:
        text = (
            f"column {odd.column} of the batch is about {number(odd.value)}, the largest of the "
            f"others {number(odd.typical)}: it is not scaled"
        )
    yield Cause(code="bad_data", evidence=text)


def _comes_in(op: OpRecord) -> bool:
    """A constant or a row of the data, taken from what stood there before the step."""
    chosen = op.name in CHOOSING and bool(op.inputs)
    return op.name == "lift_fresh" or (chosen and op.inputs[0].source == FROM_BEFORE)


def _initialisation(evidence: Evidence) -> Iterator[Cause]:
    layers = evidence.around.layers
    if not layers or evidence.origin.step > 0:
        return
    worst = max(layers, key=lambda layer: layer.rms / layer.usual)
    others = f" (and {plural(len(layers) - 1, 'other layer')})" if len(layers) > 1 else ""
    yield Cause(
        code="bad_init",
        evidence=(
            f"{worst.name}{others} was initialised at scale {number(worst.rms)}; its "
            f"{math.prod(worst.shape[1:]):,} inputs ask for about {number(worst.usual)}"
        ),
    )


def _finite(rows: tuple[HistoryRow, ...]) -> list[tuple[int, float]]:
    return [(r.step, r.loss) for r in rows if r.loss is not None and math.isfinite(r.loss)]


def _learning_rate(evidence: Evidence, culprit: Operand | None) -> Iterator[Cause]:
    """The loss had been rising for some steps, or a single update was as large as the weights."""
    leap = _leap_out_of_domain(culprit)
    if leap is not None:
        yield Cause(code="high_learning_rate", evidence=leap)
        return
    rows = evidence.around.history
    rate = rows[-1].lr if rows else None
    losses = _finite(rows)
    if len(losses) < 3 or evidence.origin.phase == "data":
        return
    low_step, low = min(losses, key=lambda pair: pair[1])
    # Two steps at least: a single leap may be one bad batch.
    late = [(step, loss) for step, loss in losses if step > low_step][-3:]
    if low > 0 and len(late) > 1 and all(loss > ROSE * low for _, loss in late[-2:]):
        step, high = late[-1]
        text = (
            f"the loss rose from {number(low)} at step {low_step} to {number(high)} at step {step}"
        )
        with_rate = "" if rate is None else f", with lr {number(rate)}"
        yield Cause(code="high_learning_rate", evidence=text + with_rate)
        return
    norm = evidence.around.weight_norm
    updates = [(r.step, r.lr * r.grad_max) for r in rows if r.lr and r.grad_max is not None]
    if not norm or not updates or culprit is None or (culprit.value or 0) >= 0:
        return
    step, update = max(updates, key=lambda pair: pair[1])
    first = losses[0][1]
    rose = max(loss for _, loss in losses[1:]) > 1.5 * first > 0
    if rose and math.isfinite(update) and update > OVERSHOT * norm:
        text = f"at step {step} lr {number(rate)} times the gradient was {number(update)}"
        yield Cause(
            code="high_learning_rate",
            evidence=f"{text}; the largest weight has norm {number(norm)}",
        )


def _leap_out_of_domain(culprit: Operand | None) -> str | None:
    """One update that took a parameter of ordinary size from the positive numbers."""
    update = culprit.upstream[0] if culprit is not None and culprit.upstream else None
    if update is None or update.phase != "optimizer" or not update.inputs:
        return None
    source, before, after = update.inputs[0].source or "", update.inputs[0].value, update.value
    if not source.startswith("parameter") or before is None or after is None:
        return None
    if before <= 0 or after > 0 or before - after < OVERSHOT * max(before, 1.0):
        return None
    return f"one update took {source} from {number(before)} to {number(after)}"


def _gradients(evidence: Evidence, culprit: Operand | None) -> Iterator[Cause]:
    """Geometric growth, over the depth of one backward pass or over the last steps."""
    if evidence.origin.node is not None and culprit is not None:
        sizes = [abs(op.value) for op in culprit.upstream if op.derived and op.value]
        known = [s for s in sizes if math.isfinite(s) and s > 0]
        if len(known) >= 5:
            rate = (known[0] / known[-1]) ** (1 / (len(known) - 1))
            if rate > STEEP:
                text = f"over {len(known)} operations of the backward pass the gradient grew from {number(known[-1])} to {number(known[0])}"
                yield Cause(code="exploding_gradients", evidence=f"{text}, {rate:.1f} times each")
                return
    rows = [r for r in evidence.around.history if r.grad_max is not None and r.grad_max > 0]
    last = [r.grad_max for r in rows[-6:] if r.grad_max is not None]
    if len(last) < 4 or not all(b > 1.5 * a for a, b in pairwise(last)):
        return
    if last[-1] > GREW * last[0]:
        # An infinite norm may be its squares' overflow: nothing is said of the gradient itself.
        held = [norm for norm in last if math.isfinite(norm)]
        text = f"the largest norm of a gradient grew from {number(held[0])} to {number(held[-1])} in {len(held)} steps"
        beyond = ", then beyond what can be measured" if len(held) < len(last) else ""
        yield Cause(code="exploding_gradients", evidence=text + beyond)
