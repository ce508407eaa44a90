"""A value in a tensor that is far from the others of its column, or a column far from the others."""

from __future__ import annotations

import torch

from whynan.model import Oddity
from whynan.seam.devices import double

OUTLYING = 1000.0  # robust standard deviations from the median
GAP = 10.0  # times as far as the next one
FEW = 10  # at most one in so many
SOME = 3
TINY = 1e-12
UNSCALED = 1e6  # times the magnitude of the other columns
MAX_VALUES = 4_000_000  # larger batches are not searched


def oddity_in(tensor: torch.Tensor) -> Oddity | None:
    """One value far outside its column, or one column far larger than the others."""
    if not tensor.is_floating_point() or not 4 <= tensor.numel() <= MAX_VALUES:
        return None
    table = double(tensor)
    table = table if table.dim() == 2 and len(table) > 3 else table.reshape(-1, 1)
    if not bool(torch.isfinite(table).all()):
        return None
    found = _outlier(table)
    if found is not None:
        row, column = found
        value, typical = float(table[row, column]), float(table[:, column].abs().median())
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


def _outlier(table: torch.Tensor) -> tuple[int, int] | None:
    """The farthest value of the few that a gap parts from all others of their column, far beyond
    anything usual there. The 1 of a rare class is none, nor is the end of a long tail."""
    away = (table - table.median(dim=0).values).abs()
    spread = 1.4826 * away.median(dim=0).values
    ends = away.topk(max(1, len(table) // FEW) + 1, dim=0).values
    gaps = (ends[:-1] / ends[1:].clamp(min=TINY)).max(dim=0).values
    is_far = (ends[0] > OUTLYING * spread) & (gaps > GAP)
    gaps = torch.where(is_far, gaps, 0.0)
    for column in gaps.argsort(descending=True)[: int(is_far.sum())].tolist():
        row = int(away[:, column].argmax())
        value = float(table[row, column].abs())
        if value > 100 * _usual(table, column, value):
            return row, column
    return None


def _usual(table: torch.Tensor, column: int, value: float) -> float:
    """How large the other values are that are not 0: those of the column if it has some, else all."""
    for others in (table[:, column].abs(), table.abs().flatten()):
        others = others[(others > 0) & (others < value / GAP)]
        if len(others) >= SOME:
            return float(others.median())
    return 1.0
