"""A value on the scale of its type, from underflow to overflow; a tensor as exponents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from whynan.model import TensorStats, number
from whynan.report.scales import decades

WIDTH, EDGE = 160, 16
BARS_WIDTH, BARS_HEIGHT = 420, 120
BARS_LEFT, BARS_BOTTOM = 46, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """Where the magnitude stands between 0 and infinity."""

    at: float
    kind: Literal["finite", "zero", "inf", "nan"]
    one: float  # where 1 stands
    words: str


def gauge(value: float | None, dtype: str) -> Gauge | None:
    """A place in pixels: 0 at the left end, infinity at the right end."""
    if value is None:
        return None
    low, high = decades(dtype)
    one = _place(0.0, low, high)
    if math.isnan(value):
        return Gauge(at=WIDTH - EDGE / 2, kind="nan", one=one, words="not a number")
    if math.isinf(value):
        return Gauge(at=WIDTH - EDGE / 2, kind="inf", one=one, words=f"beyond {dtype}")
    if value == 0:
        return Gauge(at=EDGE / 2, kind="zero", one=one, words="exactly 0")
    at = _place(math.log10(abs(value)), low, high)
    return Gauge(at=at, kind="finite", one=one, words=f"{number(value)} within {dtype}")


def _place(decade: float, low: float, high: float) -> float:
    share = min(1.0, max(0.0, (decade - low) / (high - low)))
    return round(EDGE + share * (WIDTH - 2 * EDGE), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A histogram over powers of two."""

    bars: tuple[tuple[float, float, float, str], ...]  # x, y, width, words
    ticks: tuple[tuple[float, str], ...]
    counts: tuple[tuple[float, str], ...]  # the axis of heights
    limits: tuple[tuple[float, str], ...]
    words: str


def bars_of(stats: TensorStats | None) -> Bars | None:
    """How the magnitudes of a tensor are spread, when that was recorded."""
    if stats is None or not stats.exponents:
        return None
    counts = stats.exponents
    low, high = min(counts), max(counts)
    low, high = low - 1, max(high + 1, low + 8)
    width = (BARS_WIDTH - 10 - BARS_LEFT) / (high - low + 1)
    most = max(counts.values())

    def x(exponent: float) -> float:
        return round(BARS_LEFT + (exponent - low) * width, 1)

    def y(n: int) -> float:
        # A single value among millions must still be seen: heights are logarithmic.
        height = (BARS_HEIGHT - BARS_BOTTOM - 14) * math.log1p(n) / math.log1p(most)
        return round(BARS_HEIGHT - BARS_BOTTOM - height, 1)

    def bar(exponent: int, n: int) -> tuple[float, float, float, str]:
        words = f"{n:,} between {number(2.0**exponent)} and {number(2.0 ** (exponent + 1))}"
        return x(exponent), y(n), round(width * 0.9, 1), words

    per_decade = math.log2(10)
    first, last = math.ceil(low / per_decade), math.floor((high + 1) / per_decade)
    shown = range(first, last + 1, max(1, math.ceil((last - first + 1) / 6)))
    under, over = (decade * per_decade for decade in decades(stats.dtype))
    limits = [(under, "underflow"), (over, "overflow")]
    return Bars(
        bars=tuple(bar(exponent, n) for exponent, n in sorted(counts.items())),
        ticks=tuple(
            # Its middle stands below its place, unless the edge would cut it.
            (max(x(d * per_decade), BARS_LEFT + 4.0 * len(f"1e{d}")), f"1e{d}" if d else "1")
            for d in shown
        ),
        counts=tuple((y(n), _short(n)) for n in _counts(most)),
        limits=tuple((x(place), word) for place, word in limits if low <= place <= high + 1),
        words=f"magnitudes from {number(2.0 ** min(counts))} to {number(2.0 ** (max(counts) + 1))}",
    )


def _counts(most: int) -> list[int]:
    """Round numbers up to the highest bar, no two of them close together.

    >>> _counts(3), _counts(40), _counts(5_000_000)
    ([1, 3], [1, 10, 40], [1, 100, 10000, 1000000, 5000000])
    """
    powers = len(str(most))
    round_numbers = [10**power for power in range(0, powers, max(1, math.ceil(powers / 4)))]
    return round_numbers if most < 3 * round_numbers[-1] else [*round_numbers, most]


def _short(n: int) -> str:
    """`1,000`, `100k`, `5M`."""
    if n >= 1_000_000:
        return f"{n / 1_000_000:.3g}M"
    return f"{n / 1_000:.3g}k" if n >= 10_000 else f"{n:,}"
