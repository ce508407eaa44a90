"""Phrases that several rules share."""

from __future__ import annotations

from whynan.model import Evidence, Operand, OpRecord, TensorStats, number

NONFINITE = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 value`, `3 values`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def at(index: tuple[int, ...] | None) -> str:
    """` at [7, 2]`, or nothing for a scalar."""
    return f" at [{', '.join(map(str, index))}]" if index else ""


def bad_values(stats: TensorStats | None) -> str:
    """`3 NaN and 2 inf of 5,120 values`."""
    if stats is None:
        return "a non-finite value"
    counts = [(stats.nan, "NaN"), (stats.posinf, "inf"), (stats.neginf, "-inf")]
    words = [f"{n:,} {word}" for n, word in counts if n]
    if not words:
        return "a non-finite value"
    joined = " and ".join(words)
    return joined if stats.count == 1 else f"{joined} of {stats.count:,} values"


def origin_label(op: OpRecord) -> str:
    """What stands under the carets."""
    index = op.outputs[0].first or op.outputs[0].index if op.outputs else None
    what = bad_values(op.out) if op.out is not None and op.out.nonfinite else number(op.value)
    return f"origin: {what}, first{at(index)}" if index else f"origin: {what}"


def subject(evidence: Evidence) -> str:
    """`loss is NaN`, `gradient of fc.weight is inf`, `every gradient became 0`."""
    if evidence.effect:
        return evidence.effect
    if evidence.sink == "exception":
        return f"{evidence.subject} was raised"
    value = "not finite" if evidence.sink_value is None else number(evidence.sink_value)
    return f"{evidence.subject} is {value}"


def called(operand: Operand | None, fallback: str = "its input") -> str:
    """An operand by the user's name for it."""
    return f"`{operand.name}`" if operand is not None and operand.name else fallback


def dtype_max(dtype: str) -> float | None:
    """The largest finite number of a type, by name."""
    return {
        "float16": 65504.0,
        "bfloat16": 3.3895313892515355e38,
        "float32": 3.4028234663852886e38,
        "float64": 1.7976931348623157e308,
        "complex64": 3.4028234663852886e38,
        "complex128": 1.7976931348623157e308,
        "float8_e4m3fn": 448.0,
        "float8_e5m2": 57344.0,
    }.get(dtype)


def dtype_tiny(dtype: str) -> float | None:
    """The smallest number of a type that still has all its digits, by name."""
    return {
        "float16": 2.0**-14,
        "bfloat16": 2.0**-126,
        "float32": 2.0**-126,
        "float64": 2.0**-1022,
        "complex64": 2.0**-126,
        "complex128": 2.0**-1022,
    }.get(dtype)
