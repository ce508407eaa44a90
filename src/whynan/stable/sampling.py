"""Random draws that cannot meet log(0), and sampling that names the bad row."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import torch
from torch import Tensor

from whynan.stable.precision import HALF
from whynan.stable.softmaxes import refuse_unknown


def gumbel_like(x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Gumbel noise in the shape of `x`.

    -log(-log(u)) is infinite for a u of 0 or 1, one draw in 512 in bfloat16. Here u is drawn in
    float32 or float64, never as 1, and kept off 0.
    """
    work = torch.float32 if x.dtype in HALF else x.dtype
    u = torch.rand(x.shape, dtype=work, device=x.device, generator=generator)
    return u.clamp_(min=torch.finfo(work).tiny).log_().neg_().log_().neg_().to(x.dtype)


def safe_categorical(
    probs: Tensor | None = None,
    *,
    logits: Tensor | None = None,
    num_samples: int | None = None,
    bad: Literal["warn", "raise"] = "warn",
    empty: Literal["raise", "uniform"] = "raise",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw class indices along the last dimension from weights or logits.

    Weights need not sum to 1. One that is NaN, infinite or negative counts as 0, with a warning
    that says how many there were and in which row the first one is, because they are a symptom;
    `bad="raise"` makes it an error. A row without any weight is an error that names the row;
    `empty="uniform"` draws any class. With `num_samples`, the result has one more dimension.
    """
    if (probs is None) == (logits is None):
        raise TypeError("give either probs or logits")
    refuse_unknown(empty, "raise", "uniform")
    if probs is not None:
        given = probs.detach()
        wrong = ~(torch.isfinite(given) & (given >= 0))
        scores = torch.where(wrong, 0.0, given).to(torch.float64).log()
    else:
        assert logits is not None
        given = logits.detach()
        wrong = torch.isnan(given) | (given == math.inf)
        scores = torch.where(wrong, -math.inf, given).to(torch.float64)
    if bool(wrong.any()):
        _complain(given, wrong, "weights" if probs is not None else "logits", bad)
    none = (scores == -math.inf).all(-1, keepdim=True)
    if bool(none.any()):
        if empty == "raise":
            row = _row(none.squeeze(-1))
            raise ValueError(
                f"safe_categorical: no class of {row} can be drawn: {_shown(given, row)}"
            )
        scores = torch.where(none, 0.0, scores)
    draws = scores.unsqueeze(-2).expand(*scores.shape[:-1], num_samples or 1, scores.shape[-1])
    drawn = (draws + gumbel_like(draws, generator=generator)).argmax(-1)
    return drawn if num_samples is not None else drawn.squeeze(-1)


def _complain(given: Tensor, wrong: Tensor, what: str, bad: str) -> None:
    rows = wrong.any(-1)
    counts = {
        "NaN": int(torch.isnan(given).sum()),
        "infinite": int((torch.isinf(given) & wrong).sum()),
        "negative": int(((given < 0) & torch.isfinite(given) & wrong).sum()),
    }
    kinds = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
    first = _row(rows)
    message = (
        f"safe_categorical: {kinds} of {given.numel():,} {what}, in {int(rows.sum()):,} of "
        f"{rows.numel():,} rows, first in {first}: {_shown(given, first)}"
    )
    if bad == "raise":
        raise ValueError(message)
    warnings.warn(message + "; counted as 0", RuntimeWarning, stacklevel=3)


def _row(mask: Tensor) -> str:
    """Which row, as one would index it."""
    return f"row {mask.nonzero()[0].tolist()}" if mask.dim() else "the only row"


def _shown(given: Tensor, row: str) -> str:
    index = row.partition("[")[2].rstrip("]")
    values = given[tuple(int(i) for i in index.split(","))] if index else given
    shown = ", ".join(f"{v:.4g}" for v in values[:6].tolist())
    return f"[{shown}{', ...' if values.numel() > 6 else ''}]"
