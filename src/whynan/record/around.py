"""The state of the run at the moment of harm: guilty sample, odd data, weights, history."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from whynan.model import (
    Circumstances,
    Evidence,
    HistoryRow,
    Layer,
    Oddity,
    Sample,
    Unstable,
    number,
)
from whynan.record.growing import growth_of
from whynan.record.guilty_rows import odd_cell, place_in_table, row_of_operand
from whynan.record.item_names import name_of
from whynan.record.listed import from_a_list
from whynan.record.modules import clean
from whynan.record.oddities import MAX_VALUES, oddity_in
from whynan.record.reads import value_after
from whynan.record.rows import samples_of
from whynan.record.set_by import set_somewhere, setting_of, small_eps_of
from whynan.record.table_rows import row_of
from whynan.record.whole import oddity_before
from whynan.seam.devices import double
from whynan.seam.members import behind
from whynan.seam.reading import readable
from whynan.seam.stats import first_nonfinite

if TYPE_CHECKING:
    from whynan.record.recorder import Recorder

ROWS = 32  # of the history
TOO_LARGE = 10.0  # times the usual scale of a weight
RISEN = 100.0  # times the lowest loss
ADAPTIVE = ("betas", "alpha", "lr_decay", "rho", "etas")  # what optimizers are given that scale
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def look_around(evidence: Evidence, recorder: Recorder) -> Evidence:
    """Add the circumstances; what cannot be looked at is left out."""
    inputs = recorder.batches.inputs
    try:
        with torch.no_grad():
            history, sample = _history(recorder), _sample(evidence, recorder)
            around = Circumstances(
                history=history,
                sample=sample,
                odd_cell=odd_cell(evidence, recorder, sample),
                fetch=recorder.batches.last_fetch(),
                workers=recorder.batches.workers,
                loads=bool(recorder.batches.fetches or recorder.batches.iterator() is not None),
                layers=_layers(recorder),
                oddity=_oddity(inputs, recorder) or oddity_before(recorder, history),
                input_size=_input_size(inputs),
                weight_norm=_weight_norm(recorder),
                moved=_moved(history[-1:], recorder),
                moved_lately=_moved(_since_lowest(history), recorder),
                setting=setting_of(evidence),
                small_eps=small_eps_of(evidence),
                unstable=_unstable(recorder.updates.last()) if evidence.origin.step else None,
                growth=growth_of(evidence, recorder.tracer.records),
                loss_factor=recorder.losses.factor(),
            )
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return evidence  # an exotic tensor: the diagnosis stands without it
    return replace(evidence, around=around)


def _oddity(inputs: list[torch.Tensor], recorder: Recorder) -> Oddity | None:
    """In what the model was given, or else in what the loader gave with it, such as targets."""
    given = [t for _, t in recorder.batches.columns() if t.layout is torch.strided and t.dim()]
    return next((o for t in (*inputs, *given) if (o := oddity_in(t)) is not None), None)


def _history(recorder: Recorder) -> tuple[HistoryRow, ...]:
    return recorder.history.with_layers(recorder.history.rows()[-ROWS:])


def _sample(evidence: Evidence, recorder: Recorder) -> Sample | None:
    """With what its dataset calls it, or its place in the table that it was taken from."""
    found = _guilty(evidence, recorder)
    if found is None:
        if recorder.batches.fetches:
            return None
        in_list = from_a_list(evidence, recorder.tracer, None)
        return in_list or row_of_operand(evidence, recorder)
    if found.dataset_index is None:
        if recorder.batches.fetches:
            return replace(found, called=recorder.batches.stream_item(found.index))
        in_table = _in_slice(_in_table(found, evidence, recorder), recorder)
        is_known = in_table.dataset_index is not None
        return in_table if is_known else from_a_list(evidence, recorder.tracer, found)
    asked, _ = recorder.batches.behind(None)
    return replace(found, called=name_of(behind(asked), found.dataset_index))


def _in_slice(sample: Sample, recorder: Recorder) -> Sample:
    """Of a batch that is a slice of a table: `X[k : k + 32]`."""
    for tensor in recorder.batches.inputs if sample.dataset_index is None else ():
        place = place_in_table(tensor) if len(tensor) == sample.size else None
        if place is not None and place[2] > sample.size:
            name, first, _ = place
            return replace(sample, dataset_index=first + sample.index, table=f"`{name}`")
    return sample


def _in_table(sample: Sample, evidence: Evidence, recorder: Recorder) -> Sample:
    record = recorder.tracer.records.get(evidence.origin.index)
    made = value_after(record, 0) if record is not None and record.outs else None
    bad = None if made is None or made.dim() == 0 else first_nonfinite(made)
    if record is None or bad is None:
        return sample
    locate = recorder.slicer.ancestry.locate
    row = row_of(record, 0, bad, sample.index, sample.size, locate)
    if row is None:
        return sample
    return replace(sample, dataset_index=row.number, table=f"a table of {row.length:,}")


def _guilty(evidence: Evidence, recorder: Recorder) -> Sample | None:
    """From the inputs if they are bad themselves, else from the rows that the origin spoilt."""
    inputs = recorder.batches.inputs
    size = len(inputs[0]) if inputs else len(recorder.batches.indices or ())
    given = _given_bad(evidence, recorder)
    if given is not None:
        return given
    joined = _joined(evidence, recorder)
    if joined is not None:
        return joined
    alone = size == 1 and len(recorder.batches.indices or ()) == 1 and not _has_risen(recorder)
    if (size < 2 and not alone) or recorder.batches.packed:
        return None
    if not _is_batch(inputs, size, recorder):
        return None
    for tensor in inputs:
        if tensor.is_floating_point() and len(tensor) == size:
            rows = _bad_rows(tensor)
            if rows:
                return _named(rows, size, recorder)
    record = recorder.tracer.records.get(evidence.origin.index)
    if record is None or not record.outs or record.in_optimizer or record.setup:
        return None
    made = value_after(record, 0)
    if made is None or not (made.is_floating_point() or made.is_complex()):
        return None
    if not _is_table(inputs, size, recorder) and made.shape[:1] != (size,):
        return None  # a list of numbers each: perhaps the steps of one sequence
    locate = recorder.slicer.ancestry.locate
    return _named(samples_of(record, made, size, locate) or [], size, recorder)


def _joined(evidence: Evidence, recorder: Recorder) -> Sample | None:
    """Of items whose rows were joined: those that the bad rows of the origin belong to."""
    owners, indices = recorder.batches.owners(), recorder.batches.indices or ()
    record = recorder.tracer.records.get(evidence.origin.index)
    made = value_after(record, 0) if record is not None and record.outs else None
    if owners is None or record is None or made is None or len(indices) < 2:
        return None
    if made.shape[:1] == owners.shape:
        found = sorted({int(owners[row]) for row in _bad_rows(made)})
    else:  # of edges, say
        locate, items = recorder.slicer.ancestry.locate, owners.tolist()
        found = samples_of(record, made, len(items), locate, items) or []
    return _named(found, len(indices), recorder) if found[-1:] < [len(indices)] else None


def _has_risen(recorder: Recorder) -> bool:
    """A loss that went up by far: no single item is to blame."""
    losses = [row.loss for row in _history(recorder) if row.loss is not None]
    finite = [abs(loss) for loss in losses if math.isfinite(loss)]
    return bool(finite) and finite[-1] > RISEN * min(finite) > 0


def _given_bad(evidence: Evidence, recorder: Recorder) -> Sample | None:
    """Of what was bad as it came in: its row in the batch that the loader gave."""
    indices = recorder.batches.indices or ()
    if evidence.origin.phase != "data" or not indices:
        return None
    for name, tensor in recorder.batches.columns():
        if tensor.dim() and len(tensor) <= len(indices) and tensor.layout is torch.strided:
            found = _named(_bad_rows(tensor), len(tensor), recorder)
            if found is not None:
                return replace(found, column=name or None)
    return None


def _is_batch(inputs: list[torch.Tensor], size: int, recorder: Recorder) -> bool:
    """One dimension alone may be the features of a single sample; a DataLoader says what it is, and
    users beside items are pairs."""
    if _is_table(inputs, size, recorder):
        return True
    alike = [t for t in inputs if len(t) == size and t.dim() == 1 and not t.is_floating_point()]
    return len(alike) > 1 and not _has_sequence_first(recorder)


def _is_table(inputs: list[torch.Tensor], size: int, recorder: Recorder) -> bool:
    if len(recorder.batches.indices or ()) == size:
        return True
    deep = any(len(t) == size and t.dim() > 1 for t in inputs)
    return deep and not _has_sequence_first(recorder)


def _has_sequence_first(recorder: Recorder) -> bool:
    """Then the first dimension may be time."""
    modules = (module for root in recorder.names.roots() for module in root.modules())
    return any(getattr(module, "batch_first", None) is False for module in modules)


def _bad_rows(tensor: torch.Tensor) -> list[int]:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return []
    bad = ~torch.isfinite(tensor)
    rows = bad.reshape(len(tensor), -1).any(dim=1)
    return [int(i) for i in rows.nonzero().reshape(-1)]


def _named(rows: list[int], size: int, recorder: Recorder) -> Sample | None:
    if not rows or (len(rows) == size and size > 1):
        return None  # every sample: the fault is not in one of them
    indices = recorder.batches.indices
    known = indices is not None and len(indices) >= size
    if size == 1 and not known:
        return None
    return Sample(
        index=rows[0],
        size=size,
        bad=len(rows),
        dataset_index=indices[rows[0]] if known and indices is not None else None,
    )


def _layers(recorder: Recorder) -> tuple[Layer, ...]:
    """Weights far larger than their number of inputs asks for, before the first update."""
    found = []
    for root in recorder.names.roots():
        for name, module in root.named_modules():
            weight = readable(module.weight) if isinstance(module, WEIGHTED) else None
            if weight is None or weight.numel() < 2:
                continue
            shape = tuple(module.weight.shape)  # of a sharded one, as the program wrote it
            usual = math.sqrt(2.0 / math.prod(shape[1:]))
            rms = float(double(weight).square().mean().sqrt())
            if rms > TOO_LARGE * usual:
                label = f"{clean(name)}.weight".lstrip(".")
                found.append(Layer(name=label, shape=shape, rms=rms, usual=usual))
    return tuple(found)


def _parameters(recorder: Recorder) -> list[torch.Tensor]:
    """Those that are trained; what is known of the modules, before an optimizer was seen. Of
    sharded ones, this rank's parts."""
    optimizer = recorder.updates.last()
    if optimizer is not None:
        found = [p for group in optimizer.param_groups for p in group["params"]]
    else:
        found = [p for root in recorder.names.roots() for p in root.parameters()]
    values = [v for p in found if (v := readable(p)) is not None]
    dense = [v for v in values if v.is_floating_point() and v.layout is torch.strided]
    return dense if optimizer is not None else [v for v in dense if v.dim() > 1]


def _weight_norm(recorder: Recorder) -> float | None:
    norms = [float(double(p).norm()) for p in _parameters(recorder)]
    finite = [n for n in norms if math.isfinite(n)]
    return max(finite, default=None)


def _since_lowest(rows: tuple[HistoryRow, ...]) -> tuple[HistoryRow, ...]:
    """The steps that began at the lowest loss."""
    losses = [math.inf if r.loss is None or math.isnan(r.loss) else r.loss for r in rows]
    return rows[losses.index(min(losses)) :] if losses else ()


def _moved(rows: tuple[HistoryRow, ...], recorder: Recorder) -> float | None:
    """How far the updates of these steps can have moved a parameter: the learning rate times the
    gradient, or for an optimizer that divides by the gradient's size, times the root of its number
    of values."""
    known = [(r.lr, r.grad_max) for r in rows if r.lr is not None and r.grad_max is not None]
    if not known:
        return None
    optimizer = recorder.updates.last()
    group = optimizer.param_groups[0] if optimizer is not None and optimizer.param_groups else {}
    if any(name in group for name in ADAPTIVE):
        most = max((p.numel() for p in _parameters(recorder)), default=0)
        return sum(abs(lr) for lr, _ in known) * math.sqrt(most)
    momentum = group.get("momentum", 0.0)
    longer = 1 / (1 - momentum) if isinstance(momentum, float) and 0 <= momentum < 1 else 1.0
    return sum(abs(lr) * size for lr, size in known) * longer


def _input_size(inputs: list[torch.Tensor]) -> float | None:
    sizes = [
        float(double(t).reshape(len(t), -1).abs().median(dim=0).values.max())
        for t in inputs
        if t.is_floating_point() and t.dim() > 1 and 4 <= t.numel() <= MAX_VALUES
    ]
    return max(filter(math.isfinite, sizes), default=None)


def _unstable(optimizer: torch.optim.Optimizer | None) -> Unstable | None:
    """Of plain updates: a momentum that keeps more than it is given, a decay that overshoots 0."""
    for group in optimizer.param_groups if optimizer is not None else ():
        momentum, rate, decay = (group.get(n) for n in ("momentum", "lr", "weight_decay"))
        if isinstance(momentum, float | int) and momentum >= 1:
            why = "from 1 on, each update is larger than the one before"
            return _set_here(Unstable(name="momentum", value=float(momentum), why=why))
        scaled = any(name in group for name in ADAPTIVE) and not isinstance(
            optimizer, torch.optim.AdamW
        )
        if scaled or not isinstance(rate, float | int) or not isinstance(decay, float | int):
            continue
        if decay >= 1 and math.isfinite(rate) and rate * decay > 2:  # else it is the rate
            why = f"times lr {number(rate)} it is {number(rate * decay)}, and above 2 each step leaves a weight larger than it was"
            return _set_here(Unstable(name="weight_decay", value=float(decay), why=why))
    return None


def _set_here(found: Unstable) -> Unstable:
    place = set_somewhere(found.name, found.value)
    if place is None:
        return found
    return replace(found, where=f"{os.path.basename(place.file)}:{place.line}")
