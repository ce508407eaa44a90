"""Numbers to places: axes, ticks and the range of a floating type."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# Smallest positive and largest finite number of a type, as powers of ten.
DECADES = {
    "float16": (-7.2, 4.8), "bfloat16": (-40.0, 38.5), "float32": (-44.9, 38.5),
    "float64": (-323.3, 308.3), "complex64": (-44.9, 38.5), "complex128": (-323.3, 308.3),
    "float8_e4m3fn": (-2.7, 2.7), "float8_e5m2": (-4.8, 4.8),
}  # fmt: skip


def decades(dtype: str) -> tuple[float, float]:
    """Where a type underflows and overflows; of an unknown one, as float32."""
    return DECADES.get(dtype, DECADES["float32"])


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values in [low, high] to pixels, by magnitude when `log` is set."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        # Halves: the distance of two finite numbers may overflow.
        share = (at / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 4) -> list[float]:
        """Round numbers within the axis."""
        if not self.log:
            return _round_numbers(self.low, self.high, most)
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        step = max(1, math.ceil((last - first + 1) / most))
        return [10.0**power for power in range(first, last + 1, step)]


def _round_numbers(
    low: float, high: float, most: int, round_to: Sequence[float] = (1, 2, 2.5, 5, 10)
) -> list[float]:
    span = high - low
    if not 1e-300 < span < math.inf:  # no round numbers at the ends of the range
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in round_to if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def whole_ticks(low: int, high: int, most: int = 5) -> list[int]:
    """Round whole numbers at equal distances, for steps.

    >>> whole_ticks(0, 12), whole_ticks(0, 3)
    ([0, 5, 10], [0, 1, 2, 3])
    """
    ticks = _round_numbers(low, high, most, (1, 2, 5, 10))
    return [round(tick) for tick in ticks if tick == round(tick)]


def axis_for(values: Sequence[float], start: float, end: float) -> Axis:
    """By magnitude when positive values span more than two decades."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 100:
        return Axis(low, high, start, end, log=True)
    if low == high:
        pad = abs(low) * 0.5 or 1.0
        most = sys.float_info.max
        return Axis(max(-most, low - pad), min(most, high + pad), start, end)
    return Axis(low, high, start, end)
