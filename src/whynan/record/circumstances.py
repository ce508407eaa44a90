"""The state of the run at the moment of harm: guilty sample, odd data, weights, history."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from whynan.model import Circumstances, Evidence, HistoryRow, Layer, Oddity, Sample
from whynan.record.modules import clean
from whynan.record.relations import value_after
from whynan.record.rows import are_in_order

if TYPE_CHECKING:
    from whynan.record.session import Session

ROWS = 32  # of the history
TOO_LARGE = 10.0  # times the usual scale of a weight
OUTLYING = 1000.0  # robust standard deviations from the median
UNSCALED = 1e6  # times the magnitude of the other columns
MAX_VALUES = 4_000_000  # larger batches are not searched
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Gradients of weights: their first dimension is not the batch's.
MIXING = frozenset({"mm", "addmm", "bmm", "matmul", "sum", "convolution_backward", "t"})


def look_around(evidence: Evidence, session: Session) -> Evidence:
    """Add the circumstances; what cannot be looked at is left out."""
    inputs = session.batches.inputs
    try:
        with torch.no_grad():
            around = Circumstances(
                history=_history(session),
                sample=_sample(evidence, session),
                fetch=session.batches.last_fetch(),
                workers=session.batches.workers,
                layers=_layers(session) if evidence.step == 0 else (),
                oddity=next((o for t in inputs if (o := oddity_in(t)) is not None), None),
                input_size=_input_size(inputs),
                weight_norm=_weight_norm(session),
            )
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return evidence  # an exotic tensor: the diagnosis stands without it
    return replace(evidence, around=around)


def _history(session: Session) -> tuple[HistoryRow, ...]:
    rows = {row.step: row for row in (*session.backward.history, *session.earlier())}
    return tuple(rows[step] for step in sorted(rows))[-ROWS:]


def _sample(evidence: Evidence, session: Session) -> Sample | None:
    """From the inputs if they are bad themselves, else from the rows that the origin spoilt."""
    inputs = session.batches.inputs
    size = len(inputs[0]) if inputs else len(session.batches.indices or ())
    if size < 2 or not _is_batch(inputs, size, session):
        return None
    for tensor in inputs:
        if tensor.is_floating_point() and len(tensor) == size:
            rows = _bad_rows(tensor)
            if rows:
                return _named(rows, size, session)
    record = session.tracer.records.get(evidence.origin.index)
    if record is None or not record.outs or record.in_optimizer:
        return None
    if record.derived and record.info.base in MIXING:
        return None
    made = value_after(record, 0)
    if made is None or made.dim() == 0 or len(made) != size or record.setup:
        return None
    if not are_in_order(record, session.tracer):
        return None
    return _named(_bad_rows(made), size, session)


def _is_batch(inputs: list[torch.Tensor], size: int, session: Session) -> bool:
    """One dimension alone may be the features of a single sample; a DataLoader says what it is, and
    users beside items are pairs."""
    alike = [t for t in inputs if len(t) == size]
    pairs = [t for t in alike if t.dim() == 1 and not t.is_floating_point()]
    if any(t.dim() > 1 for t in alike) or len(pairs) > 1:
        return True
    return len(session.batches.indices or ()) == size


def _bad_rows(tensor: torch.Tensor) -> list[int]:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return []
    bad = ~torch.isfinite(tensor)
    rows = bad.reshape(len(tensor), -1).any(dim=1)
    return [int(i) for i in rows.nonzero().reshape(-1)]


def _named(rows: list[int], size: int, session: Session) -> Sample | None:
    if not rows or len(rows) == size:
        return None  # every sample: the fault is not in one of them
    indices = session.batches.indices
    known = indices is not None and len(indices) == size
    return Sample(
        index=rows[0],
        size=size,
        bad=len(rows),
        dataset_index=indices[rows[0]] if known and indices is not None else None,
    )


def _layers(session: Session) -> tuple[Layer, ...]:
    """Weights far larger than their number of inputs asks for, before the first update."""
    found = []
    for root in session.modules.roots():
        for name, module in root.named_modules():
            if not isinstance(module, WEIGHTED) or module.weight.numel() < 2:
                continue
            weight = module.weight.detach().to(torch.float64)
            usual = math.sqrt(2.0 / weight[0].numel())
            rms = float(weight.square().mean().sqrt())
            if rms > TOO_LARGE * usual:
                label = f"{clean(name)}.weight".lstrip(".")
                found.append(Layer(name=label, shape=tuple(weight.shape), rms=rms, usual=usual))
    return tuple(found)


def _weight_norm(session: Session) -> float | None:
    norms = [
        float(p.detach().to(torch.float64).norm())
        for root in session.modules.roots()
        for p in root.parameters()
        if p.is_floating_point() and p.dim() > 1
    ]
    finite = [n for n in norms if math.isfinite(n)]
    return max(finite, default=None)


def _input_size(inputs: list[torch.Tensor]) -> float | None:
    sizes = [
        float(t.to(torch.float64).reshape(len(t), -1).abs().median(dim=0).values.max())
        for t in inputs
        if t.is_floating_point() and t.dim() > 1 and 4 <= t.numel() <= MAX_VALUES
    ]
    return max(filter(math.isfinite, sizes), default=None)


def oddity_in(tensor: torch.Tensor) -> Oddity | None:
    """One value far outside its column, or one column far larger than the others."""
    if not tensor.is_floating_point() or not 4 <= tensor.numel() <= MAX_VALUES:
        return None
    table = tensor.to(torch.float64)
    table = table if table.dim() == 2 and len(table) > 3 else table.reshape(-1, 1)
    if not bool(torch.isfinite(table).all()):
        return None
    middle = table.median(dim=0).values
    away = (table - middle).abs()
    spread = 1.4826 * away.median(dim=0).values
    scores = away / spread.clamp(min=1e-6 * float(middle.abs().max()) + 1e-12)
    row, column = divmod(int(scores.argmax()), table.shape[1])
    # A column of nearly equal values has no spread to speak of; the value itself must be large.
    typical = float(table[:, column].abs().median())
    value = float(table[row, column])
    if float(scores[row, column]) > OUTLYING and abs(value) > 100 * max(typical, 1e-3):
        column_of = column if table.shape[1] > 1 else None
        at = row if table.shape[1] > 1 else row * len(tensor) // len(table)
        return Oddity(what="outlier", value=value, typical=typical, row=at, column=column_of)
    sizes = table.abs().median(dim=0).values
    largest = int(sizes.argmax())
    if len(sizes) > 1:
        others = float(torch.cat([sizes[:largest], sizes[largest + 1 :]]).max())
        if float(sizes[largest]) > UNSCALED * max(others, 1e-3):
            return Oddity(
                what="unscaled", value=float(sizes[largest]), typical=others, column=largest
            )
    return None
