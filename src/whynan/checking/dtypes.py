"""What the floating types can hold, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest finite number, smallest normal one, and the spacing just above 1."""

    max: float
    tiny: float
    eps: float


LIMITS = {
    "float64": Limits(1.7976931348623157e308, 2.2250738585072014e-308, 2.0**-52),
    "float32": Limits(3.4028234663852886e38, 2.0**-126, 2.0**-23),
    "bfloat16": Limits(3.3895313892515355e38, 2.0**-126, 2.0**-7),
    "float16": Limits(65504.0, 2.0**-14, 2.0**-10),
    "float8_e5m2": Limits(57344.0, 2.0**-14, 2.0**-2),
    "float8_e4m3fn": Limits(448.0, 2.0**-6, 2.0**-3),
    "float8_e4m3fnuz": Limits(240.0, 2.0**-7, 2.0**-3),
    "float8_e5m2fnuz": Limits(57344.0, 2.0**-15, 2.0**-2),
    "float8_e8m0fnu": Limits(2.0**127, 2.0**-127, 1.0),
}
_PARTS = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}


def limits_of(dtype: str) -> Limits | None:
    """The limits of a floating or complex type; None for any other."""
    return LIMITS.get(_PARTS.get(dtype, dtype))
