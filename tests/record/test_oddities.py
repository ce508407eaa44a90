"""An outlier is parted by a gap from all others of its column; what is merely rare is none."""

from __future__ import annotations

import pytest
import torch

from whynan.record.oddities import oddity_in


def noise(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


def rare_class() -> torch.Tensor:
    table = noise(720, 4)
    table[:, 2:] = 0
    table[120:200, 2] = 1
    table[715, 3] = 1
    return table


def long_tail() -> torch.Tensor:
    return torch.exp(2.5 * noise(400, 1)).sort(dim=0).values


@pytest.mark.parametrize("table", [rare_class(), long_tail(), noise(9, 3) * 1e4])
def test_what_is_rare_or_large_is_no_outlier(table: torch.Tensor) -> None:
    assert oddity_in(table) is None


@pytest.mark.parametrize("every", [400, 40, 10])
@pytest.mark.parametrize("fill", [-9999.0, 1e20])
def test_a_fill_value_is_one_however_often(every: int, fill: float) -> None:
    table = noise(400, 5)
    table[7::every, 3] = fill
    found = oddity_in(table)
    assert found is not None
    assert (found.what, found.column) == ("outlier", 3)
    assert found.value == pytest.approx(fill)


def test_the_outlier_is_told_and_not_the_rare_class() -> None:
    table = rare_class()
    table[3, 1] = 1450
    found = oddity_in(table)
    assert found is not None
    assert (found.row, found.column, found.value) == (3, 1, 1450)
