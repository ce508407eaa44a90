"""Statistics to remarks: what about this array could go wrong, and how badly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from whynan.checking.dtypes import limits_of
from whynan.checking.tally import Summary
from whynan.checking.verdicts import Trouble
from whynan.model import number

KINDS = (
    "nan", "inf", "negative", "zero", "subnormal", "limit", "constant", "outlier", "sum", "masked",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a remark is worth making."""

    headroom: float = 16.0  # times the largest value until the type overflows
    outlier: float = 20.0  # standard deviations from the mean


def troubles_of(
    summary: Summary, faults: Collection[str], thresholds: Thresholds
) -> tuple[Trouble, ...]:
    """Remarks in the order of their weight; `faults` says which kinds count."""
    made = [
        *_nonfinite(summary),
        ("negative", _negative(summary) if "negative" in faults else None),
        ("limit", _near_limit(summary, thresholds.headroom)),
        ("constant", _constant(summary)),
        ("outlier", _outlier(summary, thresholds.outlier)),
        ("zero", _zeros(summary)),
        ("subnormal", f"{summary.subnormals:,} subnormal" if summary.subnormals else None),
    ]
    return tuple(Trouble(kind=kind, text=text, fault=kind in faults) for kind, text in made if text)


def _nonfinite(summary: Summary) -> list[tuple[str, str | None]]:
    stats, first = summary.stats, summary.first_bad
    where = f" (first at {list(first)})" if first else ""
    infinities = [f"{n:,} {word}" for n, word in ((stats.posinf, "inf"), (stats.neginf, "-inf")) if n]  # fmt: skip
    return [
        ("nan", f"{stats.nan:,} NaN{where}" if stats.nan else None),
        ("inf", " and ".join(infinities) + ("" if stats.nan else where) if infinities else None),
    ]


def _negative(summary: Summary) -> str | None:
    stats = summary.stats
    if not stats.negatives:
        return None
    return f"{stats.negatives:,} negative, smallest {number(stats.min)}"


def _near_limit(summary: Summary, headroom: float) -> str | None:
    limits = limits_of(summary.stats.dtype)
    if limits is None or summary.reach * headroom <= limits.max:
        return None
    times = limits.max / summary.reach
    where = "at" if times < 1.05 else f"{times:.3g} x below"
    return f"largest value is {where} the {summary.stats.dtype} limit"


def _constant(summary: Summary) -> str | None:
    stats = summary.stats
    if stats.count < 2 or stats.nonfinite or stats.min is None or stats.min != stats.max:
        return None
    return "all zero" if stats.min == 0 else f"constant {number(stats.min)}"


def _outlier(summary: Summary, sigmas: float) -> str | None:
    stats, mean, std = summary.stats, summary.mean, summary.std
    if not std or mean is None or stats.min is None or stats.max is None:
        return None
    if stats.dtype == "bool" or not stats.dtype.startswith(("float", "bfloat")):
        return None
    value = stats.max if stats.max - mean > mean - stats.min else stats.min
    distance = abs(value - mean) / std
    if distance < sigmas:
        return None
    where = f" at {list(summary.farthest)}" if summary.farthest else ""
    return f"outlier {number(value)}{where}, {distance:.3g} std from the mean"


def _zeros(summary: Summary) -> str | None:
    stats = summary.stats
    if not stats.zeros or stats.dtype == "bool" or stats.min == stats.max == 0:
        return None
    return f"{stats.zeros:,} {'zero' if stats.zeros == 1 else 'zeros'}"
