"""Causes that lie around the operation: the data, the weights, the course of the training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from whynan.diagnosis.diverging import outgrown
from whynan.diagnosis.framework import AUTOCAST_OFF
from whynan.diagnosis.words import at, dtype_max, plural, whose
from whynan.model import (
    FROM_BEFORE,
    FROM_LOADER,
    Cause,
    Evidence,
    Fix,
    HistoryRow,
    Operand,
    OpRecord,
    number,
)
from whynan.ops.table import row
from whynan.source.quotes import short_path

ROSE = 100.0  # times the lowest loss so far
GREW = 1000.0  # times the smallest gradient of the last steps
LEAPT = 100.0  # times the gradient that was usual
STEEP = 1.8  # growth of a gradient from one operation to the next
HALF = 0.5  # of the largest weight: then the updates made it what it is
OVERSHOT = 0.2  # an update against the largest weight's norm; a thousandth is usual
SCALED = 128.0  # a number of one element times this or more is scaled on purpose
HUGE = 1e8  # no feature of a healthy data set
UNROUNDED = Fix(
    kind="wider_dtype",
    title="keep the value in float32 from the start: what half precision rounded does not come back",
)
CLIP = Fix(
    kind="clip_gradients",
    title="clip the gradients before each `step()`: `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`",
)
BOUNDED = Fix(
    kind="bound_growth",
    title="keep the values from growing round by round: fewer or smaller rounds, a bounded function such as `tanh`, or a penalty on what grows",
)
SPOILT = frozenset(
    {"overflow", "log_nonpositive", "invalid_domain", "sqrt_negative", "division_by_zero", "gradient_singularity"}
)  # fmt: skip
DRIFTED = frozenset({"overflow", "log_nonpositive", "invalid_domain", "sqrt_negative"})


def became_a_setting(evidence: Evidence) -> tuple[str, ...]:
    """Of a number made outside torch that an update was given: what it was there."""
    if not any(op.phase == "optimizer" for op in evidence.path):
        return ()
    numbers = [(n, v) for n, v in evidence.hyper.items() if isinstance(v, float)]
    bad = [f"the optimizer had it as {n} = {number(v)}" for n, v in numbers if v - v != 0]
    return tuple(bad[:1])


def helps_around(
    op: OpRecord, causes: tuple[Cause, ...], fixes: tuple[Fix, ...]
) -> tuple[Fix, ...]:
    """With what the causes call for; a gradient that has overflowed itself cannot be clipped any
    longer."""
    codes = [cause.code for cause in causes]
    rounded = "low_precision" in codes and not any(f.kind == "wider_dtype" for f in fixes)
    if rounded and op.dtype not in ("float16", "bfloat16"):
        fixes = (UNROUNDED, *fixes)  # the operation itself is wide enough
    if codes[:1] == ["growing_values"]:
        fixes = (BOUNDED, *fixes)
    if "autocast" in codes:
        fixes = (AUTOCAST_OFF, *fixes)
    if "exploding_gradients" not in codes or op.node is not None or op.phase != "forward":
        return fixes
    return (CLIP, *fixes) if codes[0] == "exploding_gradients" else (*fixes, CLIP)


def help_of_a_setting(evidence: Evidence, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """A number of the user's leads there: that is what to change, not the line that was given it."""
    setting = evidence.around.setting
    if setting is None:
        return fixes
    better = "a finite value" if math.isinf(setting.value) else "a value above 0"
    if setting.value and math.isfinite(setting.value):
        better = "a larger value" if abs(setting.value) < 1 else "a smaller value"
    place = f"{short_path(setting.file)}:{setting.line}"
    fix = Fix(
        kind="setting",
        title=f"give `{setting.name}` {better}: {place} sets `{setting.text}`, which leads to this",
    )
    return (fix, *fixes)


def causes_around(evidence: Evidence, mechanism: str, culprit: Operand | None) -> Iterator[Cause]:
    """What the state of the run shows, most telling first."""
    yield from _scaler(evidence)
    yield from _poisoned(evidence)
    if mechanism in DRIFTED and (unstable := evidence.around.unstable) is not None:
        where = f" ({unstable.where})" if unstable.where else ""
        text = f"{unstable.name} is {number(unstable.value)}{where}: {unstable.why}"
        yield Cause(code="setting", evidence=text)
    yield from _data(evidence, mechanism, culprit)
    if mechanism == "overflow":
        yield from _loss_factor(evidence)
        yield from _initialisation(evidence)
    if mechanism in DRIFTED:
        yield from list(_learning_rate(evidence, culprit)) or _outgrown(evidence)
        yield from _gradients(evidence, culprit)
    if mechanism == "overflow" and evidence.around.growth is not None:
        grew = evidence.around.growth
        text = f"in {grew.rounds} rounds of this line its largest operand grew from {number(grew.first)} to {number(grew.last)}"
        yield Cause(code="growing_values", evidence=text)


def _scaler(evidence: Evidence) -> Iterator[Cause]:
    if evidence.effect and evidence.effect.startswith("GradScaler"):
        yield Cause(code="loss_scale", evidence=evidence.effect)


def _loss_factor(evidence: Evidence) -> Iterator[Cause]:
    """A scale that the program itself gave the loss, without which the gradient would fit."""
    op, factor = evidence.origin, abs(evidence.around.loss_factor or 1.0)
    limit = dtype_max(op.dtype)
    if op.node is None or factor < 2 or limit is None or op.exact is None:
        return
    if math.isfinite(op.exact) and abs(op.exact) > limit >= abs(op.exact) / factor:
        text = f"the loss was multiplied by {number(factor)} before the backward pass; without that the result is {number(op.exact / factor)}"
        yield Cause(code="loss_scale", evidence=text)


def scaled_by_hand(evidence: Evidence) -> Iterator[Cause]:
    """A single number that the program multiplies by a constant of its own, beyond half precision."""
    op = evidence.origin
    factor = op.scalar("other") if op.name == "mul" and len(op.inputs) == 1 else None
    alone = op.out is not None and op.out.count == 1 and op.dtype == "float16"
    if factor is None or not alone or abs(factor) < SCALED or evidence.sink not in ("loss", "gradient"):  # fmt: skip
        return
    text = f"the loss, {number(op.inputs[0].value)}, is multiplied by {number(factor)}, and float16 ends at 65504"
    yield Cause(code="loss_scale", evidence=text)


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
    value = evidence.origin.inputs[0] if evidence.origin.inputs else None
    from_file = value is not None and value.kept_as is not None and value.file is not None
    if from_file or "load_state_dict" in (first.inside or ""):
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
        if not operand.stats.nonfinite:  # the bytes of a file, of which the numbers are not known
            return
        stats, index = operand.stats, operand.first or operand.index
        place = ""
        if index:
            table = len(index) == 2
            place = f" in row {index[0]}, column {index[1]}" if table else at(index)
            place = f", the first{place}"
        are = "is" if stats.nonfinite == 1 else "are"
        cells = f"{stats.nonfinite:,} of {stats.count:,} cells {are} not finite"
        yield Cause(code="bad_data", evidence=cells + place)
        return
    if row(evidence.origin.name).name == "ctc_loss" and mechanism == "log_nonpositive":
        yield Cause(code="bad_data", evidence="a target of the batch is too long for its input")
    odd = evidence.around.oddity
    if mechanism != "overflow":
        return
    if odd is None:
        last = culprit.upstream[-1] if culprit is not None and culprit.upstream else None
        value = _brought_in(last) if last is not None else None
        if value is not None and abs(value) > HUGE:
            yield Cause(code="bad_data", evidence=f"{number(value)} came in with the data")
        return
    column = f" of column {odd.column}" if odd.column is not None else ""
    if odd.what == "outlier":
        what = "data that the batches are cut from hold" if odd.earlier else "batch holds"
        text = (
            f"the {what} {number(odd.value)} in row {odd.row}{column}, "
            f"where {number(odd.typical)} is typical"
        )
    else:
        text = (
            f"column {odd.column} of the batch is about {number(odd.value)}, the largest of the "
            f"others {number(odd.typical)}: it is not scaled"
        )
    yield Cause(code="bad_data", evidence=text)


def _brought_in(op: OpRecord) -> float | None:
    """A constant or a value of the data: what stood there before the step, and decides the result."""
    if op.name == "lift_fresh":
        return op.value
    given = max(op.inputs, key=lambda o: abs(o.value or 0.0), default=None)
    from_data = given is not None and given.source in (FROM_BEFORE, FROM_LOADER)
    return given.value if from_data and given is not None else None


def odd_row(evidence: Evidence, mechanism: str) -> Iterator[Cause]:
    """Of the one row that leads there: it holds what no other row comes near."""
    odd, sample = evidence.around.odd_cell, evidence.around.sample
    if odd is None or mechanism not in SPOILT or evidence.around.oddity is not None:
        return
    column = f" in column {odd.column}" if odd.column is not None else ""
    table = f" of `{odd.table}`" if odd.table is not None else " of the batch"
    known = whose(sample) if sample is not None and sample.dataset_index is not None else ""
    if odd.table is None and known:
        table += f" ({known.removeprefix(', ')})"
    text = f"row {odd.row}{table} holds {number(odd.value)}{column}, where the others are at most {number(odd.typical)}"
    yield Cause(code="bad_data", evidence=text)


def _initialisation(evidence: Evidence) -> Iterator[Cause]:
    # Weights that are infinite themselves, as after a cast, say nothing of how they began.
    layers = [layer for layer in evidence.around.layers if math.isfinite(layer.rms)]
    if not layers or evidence.step > 0 or evidence.origin.step > 0 or evidence.around.setting:
        return
    worst = max(layers, key=lambda layer: layer.rms / layer.usual)
    others = f" (like {plural(len(layers) - 1, 'other layer')})" if len(layers) > 1 else ""
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
    rose = low > 0 and len(late) > 1 and all(loss > ROSE * low for _, loss in late[-2:])
    if rose and _updates_explain(evidence):
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
    higher = max(loss for _, loss in losses[1:]) > 1.5 * first > 0
    if higher and math.isfinite(update) and update > OVERSHOT * norm:
        text = f"with lr {number(rate)}, learning rate times gradient was {number(update)} at step {step}"
        yield Cause(
            code="high_learning_rate",
            evidence=f"{text}; the largest weight has norm {number(norm)}",
        )


def _outgrown(evidence: Evidence) -> list[Cause]:
    text = outgrown(evidence) if evidence.origin.phase != "data" else None
    return [] if text is None else [Cause(code="high_learning_rate", evidence=text)]


def _updates_explain(evidence: Evidence) -> bool:
    """Whether the weights are what the updates made of them; a loss may rise for other reasons.
    Of an update written by hand nothing is measured."""
    moved, norm = evidence.around.moved_lately, evidence.around.weight_norm
    return moved is None or norm is None or moved > HALF * norm


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
    """Geometric growth, over the depth of one backward pass or over the last steps; or a leap."""
    if evidence.origin.node is not None and culprit is not None:
        known = _gradient_sizes(culprit)
        if len(known) >= 5:
            rate = (known[0] / known[-1]) ** (1 / (len(known) - 1))
            if rate > STEEP:
                text = f"over {len(known)} operations of the backward pass the gradient grew from {number(known[-1])} to {number(known[0])}"
                yield Cause(
                    code="exploding_gradients",
                    evidence=f"{text}, about {rate:.1f} times per operation",
                )
                return
    rows = [r for r in evidence.around.history if r.grad_max is not None and r.grad_max > 0]
    overflowed = next((i for i, r in enumerate(rows) if r.grad_max == math.inf), len(rows))
    last = [r.grad_max for r in rows[: overflowed + 1][-6:] if r.grad_max is not None]
    grows = len(last) >= 4 and all(b > 1.5 * a for a, b in pairwise(last))
    if grows and last[-1] > GREW * last[0]:
        # An infinite norm may be its squares' overflow: nothing is said of the gradient itself.
        held = [norm for norm in last if math.isfinite(norm)]
        text = f"the largest gradient norm grew from {number(held[0])} to {number(held[-1])} in {len(held)} steps"
        beyond = ", then beyond what can be measured" if len(held) < len(last) else ""
        yield Cause(code="exploding_gradients", evidence=text + beyond)
        return
    leap = _leap(evidence, rows)
    if leap is not None:
        yield Cause(code="exploding_gradients", evidence=leap)


def _gradient_sizes(culprit: Operand) -> list[float]:
    """The gradient's own size from one operation to the next, the last one first: not what its
    formulas compute beside it, and not the sum of several passes."""
    sizes = [
        abs(op.value)
        for op in culprit.upstream
        if op.derived and op.value and not op.is_slope and "AccumulateGrad" not in (op.node or "")
    ]
    return [s for s in sizes if math.isfinite(s)]


def _leap(evidence: Evidence, rows: list[HistoryRow]) -> str | None:
    """One update, of a gradient out of all proportion, that the weights now consist of."""
    around = evidence.around
    last = rows[-1] if rows else None
    if last is None or last.grad_max is None:
        return None
    if around.moved is None or not around.weight_norm or around.moved < HALF * around.weight_norm:
        return None
    usual = sorted(r.grad_max for r in rows[:-1] if r.grad_max is not None)
    before = usual[len(usual) // 2] if len(usual) > 1 else None
    size = number(last.grad_max) if math.isfinite(last.grad_max) else "beyond what can be measured"
    text = f"at step {last.step} the largest gradient norm was {size}"
    if before is not None and last.grad_max > LEAPT * before:
        return f"{text}, after {number(before)} as the median of {len(usual)} steps"
    if before is None and around.layers and evidence.origin.step > 0:
        grown = max(around.layers, key=lambda layer: layer.rms / layer.usual)
        with_rate = "" if last.lr is None else f" with lr {number(last.lr)}"
        return f"{text}; its update{with_rate} left {grown.name} at scale {number(grown.rms)}, where {number(grown.usual)} is usual"
    return None
