"""One tensor in numbers, and how a number is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


def number(value: float | complex | None) -> str:
    """A number as a reader wants it: short, and non-finite values by name.

    >>> number(float("-inf")), number(0.0), number(1234567.0), number(-118.4321), number(1.0000001)
    ('-inf', '0', '1.235e+06', '-118.4', '1.0000001')
    """
    if value is None:
        return "?"
    if isinstance(value, complex):
        return f"{number(value.real)}{'' if value.imag < 0 else '+'}{number(value.imag)}j"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = f"{value:.4g}"
    return f"{value:.8g}" if text in ("1", "-1") else text  # of these two the last digits matter


def kind_of(value: float | complex) -> Literal["nan", "inf", "-inf"]:
    """Name the kind of a non-finite number."""
    if isinstance(value, complex):
        value = value.real if not math.isfinite(value.real) else value.imag
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "nan"


def dotted(shape: tuple[int, ...]) -> str:
    """A shape as people write it: `64x10`, `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStats:
    """One tensor in one line: shape, type, range and trouble.

    `min` and `max` are over the finite values; they are None when there is none.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    min: float | None = None
    max: float | None = None
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zeros: int = 0
    negatives: int = 0
    exponents: Mapping[int, int] | None = None  # how many values have each binary exponent

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def inf(self) -> int:
        return self.posinf + self.neginf

    @property
    def nonfinite(self) -> int:
        return self.nan + self.inf

    def __str__(self) -> str:
        parts = [f"{self.dtype} {dotted(self.shape)}"]
        if self.min is not None and self.max is not None:
            parts.append(f"in [{number(self.min)}, {number(self.max)}]")
        zeros = "zero" if self.zeros == 1 else "zeros"
        trouble = {"NaN": self.nan, "inf": self.posinf, "-inf": self.neginf, zeros: self.zeros}
        parts += [f"{n:,} {name}" for name, n in trouble.items() if n]
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from whynan.report import html

        return html.tensor_fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
