"""Statistics count numbers, whatever they are made of."""

from __future__ import annotations

import math

import torch

from whynan.seam.stats import stats_of


def test_a_complex_number_is_counted_once() -> None:
    nan, inf = math.nan, math.inf
    x = torch.tensor(
        [complex(nan, nan), complex(nan, 1), complex(inf, -inf), complex(1, -inf), 0j, 2 - 3j]
    )
    stats = stats_of(x)
    assert (stats.nan, stats.posinf, stats.neginf) == (2, 1, 1)
    assert stats.nonfinite == int((~torch.isfinite(x)).sum())
    assert (stats.zeros, stats.min, stats.max) == (1, -3.0, 2.0)
    assert stats_of(x.conj()).nonfinite == 4
    assert stats_of(x[:0]).count == 0
