"""Magnitudes are counted by their binary exponents, whatever the type."""

from __future__ import annotations

import pytest
import torch

from whynan.record.exponents import MOST_VALUES, exponents_of


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_each_value_is_counted_at_its_power_of_two(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 1.5, -4.0, 0.25, 0.0, float("inf"), float("nan")], dtype=dtype)
    assert exponents_of(x) == {-2: 1, 0: 2, 2: 1}


def test_the_smallest_numbers_of_a_type_are_seen() -> None:
    tiny = torch.tensor([2.0**-149, 2.0**127])
    assert exponents_of(tiny) == {-149: 1, 127: 1}


def test_whole_numbers_and_empty_tensors_have_none() -> None:
    assert exponents_of(torch.arange(3)) == {}
    assert exponents_of(torch.empty(0)) == {}


def test_a_huge_tensor_is_sampled() -> None:
    counts = exponents_of(torch.ones(1).expand(5 * MOST_VALUES))
    assert list(counts) == [0]
    assert counts[0] <= MOST_VALUES
