"""The history in a few characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.text import Text

from whynan.model import HistoryRow, number
from whynan.report.charts import DRAWN, Point, series, title_of

LEVELS = "▁▂▃▄▅▆▇█"
BAD = "×"
WIDTH = 32


def draw(history: Sequence[HistoryRow]) -> list[Text]:
    """One line for each number that was measured; none for a history of a single step."""
    measured = [(title_of(name), series(history, name)) for name in DRAWN]
    shown = [(title, points) for title, points in measured if len(points) > 1]
    if not shown:
        return []
    first, last = min(r.step for r in history), max(r.step for r in history)
    lines = [Text(f"history of steps {first:,} to {last:,}:", style="bold")]
    width = max(len(title) for title, _ in shown)
    for title, points in shown:
        ends = f"{number(points[0][1])} to {number(points[-1][1])}"
        marks = spark(points, first, last)
        coloured = [(mark, "bold red" if mark == BAD else "blue") for mark in marks]
        lines.append(Text.assemble(f"  {title.ljust(width)}  ", *coloured, f"  {ends}"))
    return lines


def spark(points: Sequence[Point], first: int, last: int, width: int = WIDTH) -> str:
    """Heights by magnitude when positive values span two decades; `×` is NaN or inf.

    >>> spark([(1, 1.0), (2, 2.0), (3, 3.0), (4, float("nan"))], 0, 4)
    ' ▁▅█×'
    """
    steps = last - first + 1
    width = min(width, steps)
    columns: list[list[float]] = [[] for _ in range(width)]
    for step, value in points:
        columns[min(width - 1, (step - first) * width // steps)].append(value)
    worst = [_worst(values) for values in columns]
    finite = [v for v in worst if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(finite), max(finite)
    by_magnitude = low > 0 and high / low > 100
    measure: Callable[[float], float] = math.log if by_magnitude else float
    return "".join(" " if v is None else _mark(v, low, high, measure) for v in worst)


def _worst(values: Sequence[float]) -> float | None:
    return next((v for v in values if not math.isfinite(v)), max(values, default=None))


def _mark(value: float, low: float, high: float, measure: Callable[[float], float]) -> str:
    if not math.isfinite(value):
        return BAD
    bottom, top = measure(low) / 2, measure(high) / 2  # the whole distance may overflow
    if not top > bottom:
        return LEVELS[0]
    share = (measure(value) / 2 - bottom) / (top - bottom)
    return LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))]
