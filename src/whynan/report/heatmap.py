"""Layers by steps: the magnitude of gradients and weights, and where it began to grow."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from whynan.model import HistoryRow, number
from whynan.report.scales import decades

MOST_LAYERS = 80
MOST_COLUMNS = 160
GROWN = 100.0  # times the median of what came before
# Dark to light in equal steps of lightness, readable without colour vision (viridis).
COLOURS = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725")
BAD = (214, 40, 40, 255)
NOTHING = (0, 0, 0, 0)
STOPS = [tuple(bytes.fromhex(colour)) for colour in COLOURS]

Cells = list[list[float | None]]  # a row for each layer


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """One picture with what its axes mean."""

    title: str
    layers: tuple[str, ...]
    left_out: int
    steps: tuple[int, ...]  # at which each column was measured
    last: int
    image: str  # data URI
    low: str
    high: str
    room: str  # distance to the type's limit
    began: str
    cells: tuple[tuple[str, ...], ...]
    table: tuple[tuple[str, str, str, str, int], ...]  # layer, first, last, worst, at which step
    fail_percent: float | None


def heatmaps_of(
    history: Sequence[HistoryRow], dtype: str = "float32", failing: int | None = None
) -> list[HeatMap]:
    """Of gradients and of weights; none when no row holds layers."""
    rows = sorted((row for row in history if row.layers), key=lambda row: row.step)
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row.layers or {}))
    found = []
    for place, title in ((0, "gradient norm"), (1, "weight norm")):
        cells: Cells = [
            [(row.layers or {}).get(n, (None, None))[place] for row in rows] for n in names
        ]
        found.append(_map(title, names, [row.step for row in rows], cells, dtype, failing))
    return found  # fmt: skip


def _map(
    title: str,
    names: list[str],
    steps: list[int],
    cells: Cells,
    dtype: str = "float32",
    failing: int | None = None,
) -> HeatMap:
    began = where_it_began(names, steps, cells)
    chosen = _most_moved(cells)
    kept_steps, kept, width = _columns(steps, [cells[i] for i in chosen])
    sizes = [v for row in kept for v in row if v is not None and math.isfinite(v) and v > 0]
    low, high = (min(sizes), max(sizes)) if sizes else (1.0, 1.0)
    limit = decades(dtype)[1]
    share = None if failing is None else (failing - steps[0]) / (width * len(kept_steps))
    return HeatMap(
        title=title,
        layers=tuple(names[i] for i in chosen),
        left_out=len(names) - len(chosen),
        steps=tuple(kept_steps),
        last=steps[-1],
        image=_image(kept, low, high),
        low=number(low),
        high=number(high),
        room=f"{limit - math.log10(high):.1f} decades below the limit of {dtype}",
        began=began,
        cells=tuple(tuple("" if v is None else number(v) for v in row) for row in kept),
        table=tuple(
            (names[i], *found)
            for i in chosen
            if (found := _in_numbers(steps, cells[i])) is not None
        ),
        fail_percent=round(100 * share, 2) if share is not None and 0 <= share <= 1 else None,
    )


def _in_numbers(
    steps: Sequence[int], row: Sequence[float | None]
) -> tuple[str, str, str, int] | None:
    """A row of the picture for those who cannot see it."""
    known = [(v, step) for v, step in zip(row, steps, strict=True) if v is not None]
    if not known:
        return None
    bad = next((pair for pair in known if not math.isfinite(pair[0])), None)
    worst, at = bad or max(known, key=lambda pair: (pair[0], -pair[1]))
    return number(known[0][0]), number(known[-1][0]), number(worst), at


def where_it_began(names: Sequence[str], steps: Sequence[int], cells: Cells) -> str:
    """The layers that were the first to grow a hundredfold, or to become non-finite."""
    grown = ((name, _first_growth(row)) for name, row in zip(names, cells, strict=True))
    starts = {name: place for name, place in grown if place is not None}
    if not starts:
        return _slow_climb(names, steps, cells)
    first = min(starts.values())
    layers = [name for name, place in starts.items() if place == first]
    shown = ", ".join(layers[:3]) + (f" and {len(layers) - 3} more" if len(layers) > 3 else "")
    return f"the growth began at step {steps[first]:,} in {shown}"


def _slow_climb(names: Sequence[str], steps: Sequence[int], cells: Cells) -> str:
    """A layer may grow a hundredfold without ever being a hundred times what it just was."""
    most, words = GROWN, "no layer grew a hundredfold"
    for name, row in zip(names, cells, strict=True):
        known = [(v, step) for v, step in zip(row, steps, strict=True) if v]
        if not known:
            continue
        start = median(v for v, _ in known[:5])  # the first step of all is often an odd one
        top, at = max(known)
        if top > most * start:
            most = top / start
            words = f"{name} climbed slowly, from {number(start)} to {number(top)} at step {at:,}"
    return words


def _first_growth(row: Sequence[float | None]) -> int | None:
    before: list[float] = []
    least = math.inf
    for place, value in enumerate(row):
        if value is None:
            continue
        if not math.isfinite(value):
            return place
        # The median is asked for only where it can matter: it is slow over a long run.
        risen = len(before) >= 2 and value > GROWN * least and value > GROWN * min(before)
        if risen and value > GROWN * median(before) > 0:
            return place
        least = min(least, value)
        before.append(value)
        del before[:-50]  # a long slow climb is not a blow-up
    return None


def _most_moved(cells: Cells) -> list[int]:
    """All layers, or of very many those whose magnitude changed most, in model order."""
    if len(cells) <= MOST_LAYERS:
        return list(range(len(cells)))
    return sorted(sorted(range(len(cells)), key=lambda i: -_spread(cells[i]))[:MOST_LAYERS])


def _spread(row: Sequence[float | None]) -> float:
    sizes = [v for v in row if v]
    if not all(math.isfinite(v) for v in sizes):
        return math.inf
    return math.log(max(sizes) / min(sizes)) if sizes else 0.0


def _columns(steps: list[int], cells: Cells) -> tuple[list[int], Cells, float]:
    """As wide as the steps are apart, and few enough to draw: each shows the worst of the steps it stands
    for, and where none was measured what was measured last. The last number: steps in a column."""
    apart = {b - a for a, b in pairwise(steps)}
    if len(apart) <= 1 and len(steps) <= MOST_COLUMNS:
        return steps, cells, float(min(apart, default=1) or 1)
    span = steps[-1] - steps[0] + 1
    n = min(MOST_COLUMNS, span)
    inside: list[list[int]] = [[] for _ in range(n)]
    for place, step in enumerate(steps):
        inside[(step - steps[0]) * n // span].append(place)
    last: list[list[int]] = []
    for places in inside:
        last.append(places or last[-1])  # the first is never empty
    return (
        [steps[places[0]] for places in last],
        [[_worst([row[i] for i in places]) for places in last] for row in cells],
        span / n,
    )


def _worst(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return next((v for v in known if not math.isfinite(v)), max(known, default=None))


def _image(cells: Cells, low: float, high: float) -> str:
    rows = [b"".join(bytes(_colour(v, low, high)) for v in row) for row in cells]
    packed = base64.b64encode(_png(len(cells[0]), rows)).decode()
    return f"data:image/png;base64,{packed}"


def _colour(value: float | None, low: float, high: float) -> tuple[int, ...]:
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return BAD
    if value <= 0 or high <= low:
        return (*STOPS[0], 255)
    share = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    place = share * (len(STOPS) - 1)
    i = min(int(place), len(STOPS) - 2)
    mixed = (a + (b - a) * (place - i) for a, b in zip(STOPS[i], STOPS[i + 1], strict=True))
    return (*(round(c) for c in mixed), 255)


def _png(width: int, rows: Sequence[bytes]) -> bytes:
    """A picture of one pixel per cell: far smaller than a rectangle for each."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, len(rows), 8, 6, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
