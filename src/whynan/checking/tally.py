"""Statistics of a large array, gathered block by block and merged without rounding troubles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from whynan.model import TensorStats, dotted, number


@dataclass(slots=True)
class Tally:
    """Running counts over the blocks of one array; `min` to `std` are of the finite values."""

    seen: int = 0
    finite: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = 0.0
    std: float = 0.0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0
    subnormals: int = 0
    negatives: int = 0
    first_bad: int | None = (
        None  # position in reading order: the first NaN, else the first infinity
    )
    first_is_nan: bool = False
    far: int | None = None  # position of the value farthest from 0

    def merge(self, block: Tally) -> None:
        """Add what a later block holds (Chan's update for mean and spread)."""
        if block.first_bad is not None and (
            self.first_bad is None or (block.first_is_nan and not self.first_is_nan)
        ):
            self.first_bad, self.first_is_nan = self.seen + block.first_bad, block.first_is_nan
        if block.far is not None and (self.far is None or block.reach > self.reach):
            self.far = self.seen + block.far
        if block.finite:
            total = self.finite + block.finite
            share = block.finite / total
            # Every part is scaled before it is added or squared: sums and squares leave float64.
            apart = math.sqrt(share * (1 - share))
            self.std = math.hypot(
                self.std * math.sqrt(1 - share),
                block.std * math.sqrt(share),
                block.mean * apart - self.mean * apart,
            )
            self.mean = self.mean * (1 - share) + block.mean * share
            self.finite = total
            self.min, self.max = min(self.min, block.min), max(self.max, block.max)
        self.seen += block.seen
        self.nan += block.nan
        self.posinf += block.posinf
        self.neginf += block.neginf
        self.zeros += block.zeros
        self.subnormals += block.subnormals
        self.negatives += block.negatives

    def halved(self) -> Tally:
        """Of complex numbers, read as pairs: positions are those of the pairs."""
        half = replace(self, seen=self.seen // 2)
        half.first_bad = None if self.first_bad is None else self.first_bad // 2
        half.far = None if self.far is None else self.far // 2
        return half

    @property
    def reach(self) -> float:
        """The largest finite magnitude."""
        return max(-self.min, self.max) if self.finite else 0.0

    def summary(self, *, shape: tuple[int, ...], dtype: str, device: str = "cpu") -> Summary:
        """The finished statistics."""
        stats = TensorStats(
            shape=shape,
            dtype=dtype,
            device=device,
            min=self.min if self.finite else None,
            max=self.max if self.finite else None,
            nan=self.nan,
            posinf=self.posinf,
            neginf=self.neginf,
            zeros=self.zeros,
            negatives=self.negatives,
        )
        return Summary(
            stats=stats,
            mean=self.mean if self.finite else None,
            std=self.std if self.finite else None,
            subnormals=self.subnormals,
            first_bad=_unravel(self.first_bad, shape),
            farthest=_unravel(self.far, shape),
        )


def _unravel(position: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if position is None:
        return None
    index: list[int] = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One array in one line: shape, type, range, mean, spread and bad values."""

    stats: TensorStats
    mean: float | None = None
    std: float | None = None  # population standard deviation of the finite values
    subnormals: int = 0
    first_bad: tuple[int, ...] | None = None  # the first NaN, else the first infinity
    farthest: tuple[int, ...] | None = None  # the finite value of largest magnitude

    @property
    def reach(self) -> float:
        """The largest finite magnitude."""
        low, high = self.stats.min, self.stats.max
        return max(abs(low), abs(high)) if low is not None and high is not None else 0.0

    def __str__(self) -> str:
        stats = self.stats
        parts = [f"{dotted(stats.shape)} {stats.dtype}"]
        if stats.device != "cpu":
            parts[0] += f" {stats.device}"
        if stats.min is not None and stats.max is not None:
            if stats.count == 1 and stats.min == stats.max:
                parts.append(number(stats.min))
            else:  # a single complex number, too: its two parts
                parts.append(f"in [{number(stats.min)}, {number(stats.max)}]")
            if stats.count != 1:
                parts.append(f"mean {number(self.mean)}, std {number(self.std)}")
        return "  ".join(parts)
