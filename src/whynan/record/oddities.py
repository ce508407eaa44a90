"""A value in a tensor that is far from the others of its column, or a column far from the others."""

from __future__ import annotations

import torch

from whynan.model import Oddity
from whynan.seam.devices import double

OUTLYING = 1000.0  # robust standard deviations from the median
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
