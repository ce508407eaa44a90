"""Random states come back exactly, with what a generator has kept for its next number."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random  # NumPy itself imports it when it is first used
import pytest
import torch

from whynan.seam.randomness import Randomness

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(3).tolist(),
    "random": lambda: random.gauss(0, 1),
    "numpy": lambda: np.random.rand(),
    "a Gaussian of numpy": lambda: np.random.randn(),
    "three Gaussians of numpy": lambda: np.random.standard_normal(3).tolist(),
}


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_what_is_drawn_after_a_state_came_back_is_drawn_again(
    draw: Callable[[], Any], before: int
) -> None:
    """Every second Gaussian was made together with the one before, and waits in the generator."""
    randomness = Randomness()
    for _ in range(before):
        draw()
    saved = randomness.save()
    first = [draw() for _ in range(3)]
    randomness.restore(saved)
    assert [draw() for _ in range(3)] == first
    randomness.restore(saved)
    assert [draw() for _ in range(3)] == first


def test_a_state_of_numpy_that_was_replaced_comes_back() -> None:
    randomness = Randomness()
    np.random.randn()
    saved = randomness.save()
    first = np.random.randn()
    np.random.seed(7)
    np.random.set_state(np.random.RandomState(3).get_state())
    randomness.restore(saved)
    assert np.random.randn() == first
