"""`assert_finite` says which tensor, what and where."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whynan.testing import assert_finite


def test_it_is_silent_on_finite_values() -> None:
    assert_finite(torch.ones(3))
    assert_finite([torch.arange(3), {"x": np.ones(2)}, 1.5, "text", None])
    assert_finite(torch.nn.BatchNorm1d(3))
    assert_finite(torch.empty(0))


def test_it_quotes_the_argument_as_typed() -> None:
    logits = torch.tensor([[1.0, 2.0], [float("nan"), -1.0]])
    with pytest.raises(AssertionError) as caught:
        assert_finite(logits * 2)
    assert str(caught.value) == (
        "logits * 2 is not finite\n"
        "  logits * 2: float32 2x2, in [-2, 4], 1 NaN; first at [1, 0]: nan"
    )


def test_it_names_the_part_that_is_bad() -> None:
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None
    model.weight.grad[0, 1] = float("inf")
    with pytest.raises(AssertionError, match=r"model\.weight\.grad: .*first at \[0, 1\]: inf"):
        assert_finite(model)
    with pytest.raises(AssertionError, match=r"batch\['y'\]\[1\]: float64"):
        assert_finite({"x": np.ones(2), "y": [0.0, np.array([np.nan])]}, name="batch")


def test_it_shows_a_few_of_many() -> None:
    with pytest.raises(AssertionError, match="and 7 more"):
        assert_finite([float("inf")] * 12, name="losses")
