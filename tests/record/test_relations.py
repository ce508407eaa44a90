"""A path shows the values that were read for its element, or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.record.test_tracer import anomalies_of, expect
from whynan.model import OpRecord


def maker_of(divisor: Callable[[], torch.Tensor]) -> OpRecord:
    """The operation that made the 0 that is divided by."""

    def program() -> object:
        return (1 / divisor()).sum().item()

    origin = anomalies_of(program)[0].origin
    return next(o for o in origin.inputs if o.value == 0).upstream[0]


def values_of(maker: OpRecord) -> list[float]:
    return [o.value for o in maker.inputs if o.value is not None]


def notes_of(divisor: Callable[[], torch.Tensor]) -> list[str]:
    def program() -> object:
        return (1 / divisor()).sum().item()

    return [link.note for link in anomalies_of(program)[0].chain]


AT = torch.tensor([0, 2, 2])
ONES = torch.ones(3)
PUTS: dict[str, Callable[[], torch.Tensor]] = {
    "index_add": lambda: torch.zeros(4).index_add(0, torch.tensor([0, 2, 3]), ONES),
    "scatter_add": lambda: torch.zeros(4).scatter_add(0, torch.tensor([0, 2, 3]), ONES),
    "scatter_reduce": lambda: torch.zeros(4).scatter_reduce(
        0, torch.tensor([0, 2, 3]), ONES, "mean"
    ),
    "index_put accumulate": lambda: torch.zeros(4).index_put(
        (torch.tensor([0, 2, 3]),), ONES, accumulate=True
    ),
    "embedding_bag": lambda: F.embedding_bag(
        torch.tensor([1, 2, 2]), torch.full((5, 2), 3.0), torch.tensor([0, 1, 1])
    ),
}


@pytest.mark.parametrize("name", PUTS)
def test_an_element_that_received_nothing_says_so(name: str) -> None:
    assert maker_of(PUTS[name]).untouched
    assert "nothing was added here" in notes_of(PUTS[name])


def test_what_was_never_counted_or_written_says_so() -> None:
    def written() -> torch.Tensor:
        x = torch.zeros(2, 2)
        x[torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])] = 1.0
        return x

    assert "nothing was counted here" in notes_of(lambda: torch.bincount(AT).float())
    assert "nothing was written here" in notes_of(written)


def test_contributions_are_those_of_the_element() -> None:
    def cancelled() -> torch.Tensor:
        return torch.ones(3).index_add(
            0, torch.tensor([0, 2, 1, 1]), torch.tensor([7.0, 9.0, -3.0, 2.0])
        )

    maker = maker_of(cancelled)
    assert not maker.untouched
    assert values_of(maker) == [1.0, -3.0, 2.0]


def test_a_bag_reads_its_own_rows() -> None:
    table = torch.tensor([[1.0], [5.0], [-5.0], [8.0]])

    def bags() -> torch.Tensor:
        return F.embedding_bag(
            torch.tensor([0, 1, 2, 3]), table, torch.tensor([0, 1, 3]), mode="sum"
        )

    assert values_of(maker_of(bags)) == [5.0, -5.0]


def test_a_cross_product_reads_its_own_row() -> None:
    a = torch.tensor([[1.0, 2.0, 9.0], [0.0, 0.0, 0.0]])
    b = torch.tensor([[4.0, 5.0, 7.0], [1.0, 2.0, 3.0]])
    maker = maker_of(lambda: torch.linalg.cross(a, b))
    assert values_of(maker) == [0.0, 0.0, 2.0, 3.0]


def test_a_product_of_rows_shows_one_term() -> None:
    a = torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    b = torch.tensor([[8.0, 1.0], [0.0, 1.0]])
    assert values_of(maker_of(lambda: a @ b)) == [0.0, 8.0]
    batches = maker_of(lambda: torch.einsum("bij,bjk->bik", a[None], b[None]))
    assert values_of(batches) == [0.0, 8.0]


def test_moved_values_are_found_where_they_stood() -> None:
    x = torch.tensor([[5.0, 0.0, 3.0]])
    assert values_of(maker_of(lambda: x.flip(1) + 0)) == [0.0]
    assert values_of(maker_of(lambda: x.sort(1).values)) == [0.0]
    assert values_of(maker_of(lambda: x.roll(1, 1))) == [0.0]
    assert values_of(maker_of(lambda: x.amin(1))) == [0.0]
    assert values_of(maker_of(lambda: F.pad(x[:, :1], (0, 1)))) == []


def test_a_convolution_reads_the_window_under_its_kernel() -> None:
    x = torch.tensor([[[9.0, 0.0, 0.0, 0.0, 9.0]]])
    maker = maker_of(lambda: F.conv1d(x, torch.ones(1, 1, 3)))
    assert values_of(maker) == [0.0, 1.0]


def test_where_the_relation_is_not_known_no_value_is_shown() -> None:
    x = torch.tensor([[[0.0, 0.0, 6.0, 8.0]]])
    maker = maker_of(lambda: F.avg_pool1d(x, 2))
    assert maker.value == 0
    assert values_of(maker) == []


def test_a_row_that_went_bad_earlier_is_the_origin() -> None:
    """Row 0 overflows in the second layer only; its many elements must not hide the other rows."""

    def program() -> object:
        x = torch.ones(8, 16)
        x[0] *= 1e-5
        first, second = torch.full((16, 16), 1e38), torch.full((16, 16), 1e10)
        hidden = x @ first
        out = hidden @ second
        return (out @ second).sum().item()

    expect(program, "x @ first", "overflow")


def test_the_weights_of_a_bag_are_followed() -> None:
    def program() -> object:
        given = torch.tensor([1.0, 2.0, 0.0, 0.0])
        weights = given / torch.tensor([3.0, 3.0, 0.0, 0.0])
        ids, bags = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])
        return (
            F.embedding_bag(ids, torch.ones(9, 2), bags, mode="sum", per_sample_weights=weights)
            .sum()
            .item()
        )

    expect(program, "given / torch", "division_by_zero")


def test_infinities_in_a_product_of_matrices_are_told_apart() -> None:
    """Of both signs, their sum is not defined; times 0, each alone is not."""
    rows = torch.tensor([[1.0, -1.0], [2.0, 3.0]])

    def signs() -> None:
        filled = torch.full((2, 2), float("inf"))
        (filled @ rows.t()).sum().item()

    def zeros() -> None:
        filled = torch.full((2, 2), float("inf"))
        (filled @ (rows.t() - 1)).sum().item()

    expect(signs, "filled @", "inf_minus_inf")
    expect(zeros, "filled @", "zero_times_inf")


def test_a_tensor_of_the_same_shape_is_no_result_of_the_other() -> None:
    def program() -> object:
        bad = torch.zeros(3, 2) / torch.zeros(3, 2)
        fresh = torch.full_like(bad, -float("inf"))
        return torch.maximum(fresh, bad).sum().item()

    names = [link.op for link in anomalies_of(program)[0].chain]
    assert "full_like" not in names
