"""The history in a line: its shape, its ends and its trouble can be read."""

from __future__ import annotations

import math

import pytest

from whynan.model import HistoryRow
from whynan.report.sparkline import draw, spark


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([5, 5, 5], "▁▁▁"),
        ([1.0, 1e4, 1e8], "▁▅█"),  # by magnitude: else the middle would lie at the bottom
        ([1.0, math.nan, 2.0], "▁×█"),
        ([math.inf, -math.inf], "××"),
        ([-1.0, 0.0, 1.0], "▁▅█"),
        ([0.0, 1e9], "▁█"),
        ([-1e308, 1e308], "▁█"),
        ([0.0, 5e-324], "▁▁"),
    ],
)
def test_the_shape_is_seen(values: list[float], marks: str) -> None:
    assert spark(list(enumerate(values)), 0, len(values) - 1) == marks


def test_a_long_run_fits_and_keeps_its_peak_and_its_nan() -> None:
    values = [1.0] * 20_000
    values[7_000], values[15_000] = 2.0, math.nan
    marks = spark(list(enumerate(values)), 0, 19_999)
    assert len(marks) <= 32
    assert (marks.count("█"), marks.count("×")) == (1, 1)


def test_what_was_measured_has_a_line_and_nothing_else() -> None:
    rows = [HistoryRow(step=s, loss=float(s + 1), lr=0.1 if s == 3 else None) for s in range(3, 7)]
    lines = [line.plain for line in draw(rows)]
    assert lines == ["history of steps 3 to 6:", "  loss  ▁▃▆█  4 to 7"]


def test_columns_of_different_numbers_stand_for_the_same_steps() -> None:
    rows = [HistoryRow(step=s, loss=1.0, lr=0.1 if s > 2 else None) for s in range(5)]
    lines = [line.plain for line in draw(rows)]
    assert lines[1:] == ["  loss           ▁▁▁▁▁  1 to 1", "  learning rate     ▁▁  0.1 to 0.1"]


def test_huge_and_scattered_steps_fit() -> None:
    points = [(10**12 * k, float(k)) for k in range(5)]
    marks = spark(points, 0, 4 * 10**12)
    assert len(marks) == 32
    assert marks.replace(" ", "") == "▁▃▅▇█"


def test_one_step_is_no_history() -> None:
    assert draw([]) == []
    assert draw([HistoryRow(step=0, loss=1.0)]) == []
