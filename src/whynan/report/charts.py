"""The history as small charts of one shape: a line over steps, the failing step marked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from whynan.model import HistoryRow, number
from whynan.report.scales import Axis, axis_for, whole_ticks

WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 22, 24
MOST_POINTS = 340  # as many as there are pixels
TITLES = {
    "loss": "loss", "grad_max": "largest gradient norm", "grad_norm": "whole gradient norm",
    "lr": "learning rate", "scale": "loss scale", "update_ratio": "update to weight ratio",
}  # fmt: skip
DRAWN = [f.name for f in dataclasses.fields(HistoryRow) if f.name not in ("step", "layers")]

Point = tuple[int, float]
Place = tuple[float, float]
Spread = tuple[int, float, float]  # step, lowest, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything in pixels of the chart's own box, ready to be drawn."""

    name: str
    title: str
    summary: str
    remarks: tuple[str, ...]  # how to read it
    line: str
    gaps: str  # across steps that were not measured
    band: str  # from lowest to highest, where a point stands for several steps
    dots: tuple[Place, ...]  # points without a neighbour
    bad: tuple[float, ...]  # where the value is not finite
    fail: float | None
    fail_step: int | None
    ticks_x: tuple[tuple[float, str], ...]
    ticks_y: tuple[tuple[float, str], ...]
    hover: tuple[tuple[float, float, int, str], ...]


def charts_of(history: Sequence[HistoryRow], failing: int | None) -> list[Chart]:
    """One chart for each number that was measured."""
    found = [(name, series(history, name)) for name in DRAWN]
    steps = [row.step for row in history] + ([] if failing is None else [failing])
    return [_chart(name, points, steps, failing) for name, points in found if points]


def title_of(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def series(history: Sequence[HistoryRow], name: str) -> list[Point]:
    """The steps at which a number was measured."""
    values = ((row.step, getattr(row, name)) for row in history)
    return [(step, float(v)) for step, v in values if isinstance(v, (int, float))]


def _chart(name: str, points: list[Point], steps: list[int], failing: int | None) -> Chart:
    first, last = min(steps), max(steps)
    x = Axis(first, last, LEFT, WIDTH - RIGHT)
    finite = [value for _, value in points if math.isfinite(value)] or [0.0]
    y = axis_for(finite, HEIGHT - BOTTOM, TOP)
    kept, spread = thinned(points)
    line, gaps, dots = _line(kept, x, y)
    return Chart(
        name=name,
        title=title_of(name),
        summary=summary(points, failing),
        remarks=tuple(_remarks(points, steps, y.log, bool(spread), bool(gaps))),
        line=line,
        gaps=gaps,
        band=_band(spread, x, y),
        dots=dots,
        bad=tuple(x(step) for step, value in kept if not math.isfinite(value)),
        fail=None if failing is None else x(failing),
        fail_step=failing,
        ticks_x=tuple((x(step), f"{step:,}") for step in whole_ticks(first, last)),
        ticks_y=tuple((y(tick), number(tick)) for tick in y.ticks(4) or [finite[0]]),
        hover=tuple(
            (x(step), y(value) if math.isfinite(value) else TOP, step, number(value))
            for step, value in kept
        ),
    )


def _remarks(
    points: list[Point], steps: list[int], log: bool, thin: bool, gaps: bool
) -> Iterator[str]:
    if log:
        yield "log scale"
    if thin:
        yield "median and range"
    if gaps:
        yield "dashed where nothing was kept"
    elif 2 * (points[-1][0] - points[0][0]) < max(steps) - min(steps) and len(points) > 1:
        yield f"measured at steps {points[0][0]:,} to {points[-1][0]:,}"


def thinned(points: list[Point], most: int = MOST_POINTS) -> tuple[list[Point], list[Spread]]:
    """Of each stretch the median, any non-finite point, and the lowest and highest: peaks survive."""
    if len(points) <= most:
        return points, []
    size = math.ceil(len(points) / most)
    kept: list[Point] = []
    spread: list[Spread] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        finite = sorted((p for p in part if math.isfinite(p[1])), key=_value)
        if finite:
            middle = finite[len(finite) // 2]
            kept.append(middle)
            spread.append((middle[0], finite[0][1], finite[-1][1]))
        kept += [p for p in part if not math.isfinite(p[1])][:1]
    return sorted(kept, key=lambda point: point[0]), spread


def _band(spread: list[Spread], x: Axis, y: Axis) -> str:
    if not spread:
        return ""
    wide = _wide_gap([step for step, _, _ in spread])
    starts = [i for i in range(1, len(spread)) if spread[i][0] - spread[i - 1][0] > wide]
    parts = [spread[a:b] for a, b in pairwise([0, *starts, len(spread)])]
    return "".join(_outline(part, x, y) for part in parts if len(part) > 1)


def _outline(spread: list[Spread], x: Axis, y: Axis) -> str:
    upper = [(x(step), y(high)) for step, _, high in spread]
    lower = [(x(step), y(low)) for step, low, _ in reversed(spread)]
    return _path([upper + lower]) + "Z"


def _value(point: Point) -> float:
    return point[1]


def _line(points: list[Point], x: Axis, y: Axis) -> tuple[str, str, tuple[Place, ...]]:
    """A path that ends where a value is not finite or none was taken, the latter, lonely points."""
    wide = _wide_gap([step for step, _ in points])
    runs: list[list[Place]] = [[]]
    gaps: list[list[Place]] = []
    before = points[0][0]
    for step, value in points:
        if not math.isfinite(value):
            if runs[-1]:
                runs.append([])
        else:
            place = (x(step), y(value))
            if runs[-1] and step - before > wide:
                gaps.append([runs[-1][-1], place])
                runs.append([])
            runs[-1].append(place)
        before = step
    return _path(runs), _path(gaps), tuple(run[0] for run in runs if len(run) == 1)


def _wide_gap(steps: Sequence[int]) -> float:
    """Of a long run only some early steps are kept: a line across the others would be made up."""
    between = sorted(b - a for a, b in pairwise(steps))
    typical = between[len(between) // 2] if between else 0
    return max(20.0 * typical, 0.04 * (steps[-1] - steps[0]))


def _path(runs: Iterable[Sequence[Place]]) -> str:
    return "".join("M" + "L".join(f"{a:g} {b:g}" for a, b in run) for run in runs if len(run) > 1)


def summary(points: Sequence[Point], failing: int | None = None) -> str:
    """The chart in words, for those who cannot see it."""
    finite = [p for p in points if math.isfinite(p[1])]
    words = f"steps {points[0][0]:,} to {points[-1][0]:,}"
    if finite:
        low, high = min(finite, key=_value), max(finite, key=_value)
        words += f", from {number(finite[0][1])} to {number(finite[-1][1])}"
        words += f", lowest {number(low[1])} at step {low[0]:,}"
        words += f", highest {number(high[1])} at step {high[0]:,}"
    bad = next((p for p in points if not math.isfinite(p[1])), None)
    if bad:
        words += f", {number(bad[1])} at step {bad[0]:,}"
    return words if failing is None else f"{words}; the run failed at step {failing:,}"
