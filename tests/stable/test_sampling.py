"""Draws follow their law, survive bad rows and say which they were."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from whynan import stable


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_gumbel_noise_is_finite_and_follows_its_law(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = stable.gumbel_like(torch.empty(400_000, dtype=dtype))
    assert x.dtype == dtype
    assert torch.isfinite(x).all()
    assert x.double().mean().item() == pytest.approx(0.5772, abs=0.01)
    assert x.double().var().item() == pytest.approx(math.pi**2 / 6, abs=0.05)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_classes_are_drawn_in_proportion(scale: float) -> None:
    torch.manual_seed(0)
    p = torch.tensor([[0.5, 0.0, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4]])
    drawn = stable.safe_categorical(p * scale, num_samples=40_000)
    assert drawn.shape == (2, 40_000)
    for row in (0, 1):
        share = torch.bincount(drawn[row], minlength=4) / 40_000
        torch.testing.assert_close(share, p[row], atol=0.015, rtol=0.0)
    drawn = stable.safe_categorical(logits=p.log(), num_samples=40_000)
    share = torch.bincount(drawn[0], minlength=4) / 40_000
    torch.testing.assert_close(share, p[0], atol=0.015, rtol=0.0)


def test_sound_weights_draw_in_silence_and_reproducibly() -> None:
    p = torch.rand(5, 3, 7, dtype=torch.float16)
    draws = [
        stable.safe_categorical(p, generator=torch.Generator().manual_seed(7)) for _ in range(2)
    ]
    assert draws[0].shape == (5, 3)
    assert torch.equal(*draws)


def test_bad_weights_are_counted_and_never_drawn() -> None:
    p = torch.full((8, 3), 1 / 3)
    p[5, 1], p[6, 0], p[6, 2] = math.nan, -1e-9, math.inf
    expected = r"1 NaN, 1 infinite, 1 negative of 24 weights, in 2 of 8 rows, first in row \[5\]: \[0.3333, nan, 0.3333\]"  # fmt: skip
    with pytest.warns(RuntimeWarning, match=expected):
        drawn = stable.safe_categorical(p, num_samples=200)
    assert 1 not in drawn[5]
    assert set(drawn[6].tolist()) == {1}
    with pytest.raises(ValueError, match=expected):
        stable.safe_categorical(p, bad="raise")


def test_bad_logits_are_named() -> None:
    x = torch.zeros(2, 3)
    x[1, 2] = math.nan
    with pytest.warns(
        RuntimeWarning, match=r"1 NaN of 6 logits, in 1 of 2 rows, first in row \[1\]"
    ):
        stable.safe_categorical(logits=x)
    x[1, 2] = -math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stable.safe_categorical(logits=x).shape == (2,)


def test_a_row_without_weight_is_named() -> None:
    p = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"no class of row \[1\] can be drawn: \[0, 0\]"):
        stable.safe_categorical(p)
    torch.manual_seed(0)
    drawn = stable.safe_categorical(p, empty="uniform", num_samples=100)
    assert set(drawn[0].tolist()) == {0}
    assert set(drawn[1].tolist()) == {0, 1}
    with pytest.raises(ValueError, match="no class of the only row can be drawn"):
        stable.safe_categorical(torch.zeros(3))
    with pytest.raises(TypeError, match="give either probs or logits"):
        stable.safe_categorical()
