"""The history in a few characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.text import Text

from whynan.model import HistoryRow, number
from whynan.report.charts import NOT_DRAWN, TITLES, series

LEVELS = "▁▂▃▄▅▆▇█"
BAD = "×"
WIDTH = 32


def draw(history: Sequence[HistoryRow]) -> list[Text]:
    """One line for each number that was measured; none for a history of a single step."""
    names = [name for name in HistoryRow.__dataclass_fields__ if name not in NOT_DRAWN]
    measured = [(name, series(history, name)) for name in names]
    shown = [(TITLES.get(name, name.replace("_", " ")), s) for name, s in measured if len(s) > 1]
    if not shown:
        return []
    first, last = history[0].step, history[-1].step
    lines = [Text(f"history of steps {first:,} to {last:,}:", style="bold")]
    width = max(len(title) for title, _ in shown)
    for title, points in shown:
        values = [value for _, value in points]
        ends = f"{number(values[0])} to {number(values[-1])}"
        marks = spark(values)
        coloured = [(mark, "bold red" if mark == BAD else "blue") for mark in marks]
        lines.append(Text.assemble(f"  {title.ljust(width)}  ", *coloured, f"  {ends}"))
    return lines


def spark(values: Sequence[float], width: int = WIDTH) -> str:
    """Heights by magnitude when positive values span two decades; `×` is NaN or inf.

    >>> spark([1, 2, 3, float("nan")])
    '▁▄█×'
    """
    size = max(1, math.ceil(len(values) / width))
    columns = [_worst(values[i : i + size]) for i in range(0, len(values), size)]
    finite = [v for v in columns if math.isfinite(v)]
    if not finite:
        return BAD * len(columns)
    low, high = min(finite), max(finite)
    by_magnitude = low > 0 and high / low > 100
    measure: Callable[[float], float] = math.log if by_magnitude else float
    return "".join(_mark(v, low, high, measure) for v in columns)


def _worst(values: Sequence[float]) -> float:
    return next((v for v in values if not math.isfinite(v)), max(values))


def _mark(value: float, low: float, high: float, measure: Callable[[float], float]) -> str:
    if not math.isfinite(value):
        return BAD
    if not high > low:
        return LEVELS[0]
    share = (measure(value) - measure(low)) / (measure(high) - measure(low))
    return LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))]
