"""File reports as lines for a reader and as JSON for a program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from whynan.checking.compare import Comparison
from whynan.checking.files import FileReport
from whynan.checking.verdicts import Item
from whynan.model import kind_of

SCHEMA = "whynan.check/1"
MOST_NOTES = 8
MANY, MOST_FILES = 20, 10  # files that want a summary, and how many of them it names


def lines_of(report: FileReport, *, verbose: bool) -> list[str]:
    """A headline, then what is bad, then what is odd."""
    if report.error is not None:
        return [f"{report.path}: not checked: {report.error}"]
    lost = [f"  danger  loading it would run {call}" for call in report.dangers]
    lost += [f"  not checked: {name}: {why}" for name, why in report.unread]
    if not report.items:
        found = f"no {'rows of numbers' if report.table else 'arrays of numbers'} in it"
        if report.path.name.endswith(".json"):
            found = "all parts are there"
        return [f"{report.path}: {found}{_beside(report)}", *lost]
    one, many = ("column", "columns") if report.table else ("tensor", "tensors")
    n = len(report.items)
    head = f"{report.path}: {n:,} {one if n == 1 else many}{_beside(report)}, {_values(report)}"
    bad = report.bad
    verdict = f"{len(bad):,} bad" if bad else "no NaN, no Inf" + (", nothing missing" if report.table else "")  # fmt: skip
    lines = [f"{head}: {verdict}", *lost, *(f"  bad   {item}" for item in bad)]
    notes = [item for item in report.items if not item.faults and (item.troubles or verbose)]
    shown = notes if verbose else notes[:MOST_NOTES]
    lines += [f"  {'note' if item.troubles else 'ok  '}  {item}" for item in shown]
    lines += [f"  words {name}" for name in report.left_out if verbose]
    if len(notes) > len(shown):
        lines.append(f"  ...   {len(notes) - len(shown):,} more with a note; -v shows all")
    return lines


def summary(reports: list[FileReport]) -> list[str]:
    """Of many files: how many are bad, the worst first."""
    if len(reports) < MANY:
        return []
    values = sum(report.values for report in reports)
    worst = sorted((r for r in reports if r.bad or r.dangers), key=_badness)
    lost = [r for r in reports if r.error is not None or r.unread]
    head = (
        f"{len(reports):,} files, {values:,} values: {len(worst):,} bad, {len(lost):,} not checked"
    )
    lines = [head, *(f"  {report.path}: {_worst(report)}" for report in worst[:MOST_FILES])]
    if len(worst) > MOST_FILES:
        lines.append(f"  ... and {len(worst) - MOST_FILES:,} more")
    return lines


def _wrong(report: FileReport) -> int:
    return sum(i.summary.stats.nan + i.summary.stats.posinf + i.summary.stats.neginf for i in report.bad)  # fmt: skip


def _badness(report: FileReport) -> tuple[bool, float, int]:
    return not report.dangers, -_wrong(report) / max(report.values, 1), -len(report.bad)


def _worst(report: FileReport) -> str:
    parts = [f"would run {report.dangers[0]}"] if report.dangers else []
    if report.bad:
        wrong = f", {_wrong(report):,} of {_values(report)} not finite" if _wrong(report) else ""
        parts.append(f"{len(report.bad):,} bad{wrong}, such as {report.bad[0].name or 'its array'}")
    return "; ".join(parts)


def _beside(report: FileReport) -> str:
    """A word about what was passed over."""
    n = len(report.left_out)
    return f" (and {n:,} of words or dates)" if n else ""


def _values(report: FileReport) -> str:
    return f"{report.values:,} value{'s' if report.values != 1 else ''}"


def troubles(report: FileReport) -> Iterator[tuple[str, str]]:
    """What makes a file count as bad or unread, each as a short name and a sentence."""
    if report.error is not None:
        yield "not-checked", f"not checked: {report.error}"
    for call in report.dangers:
        yield "danger", f"loading it would run {call}"
    for name, why in report.unread:
        yield "not-checked", f"{name} was not checked: {why}"
    for item in report.bad:
        yield "bad-values", str(item)


def exit_code(reports: list[FileReport]) -> int:
    """3 when a value is bad or loading would act on the machine, 2 when a file or an array in it cannot be read, else 0."""
    if any(report.bad or report.dangers for report in reports):
        return 3
    return 2 if any(report.error is not None or report.unread for report in reports) else 0


def as_json(reports: list[FileReport], comparison: Comparison | None) -> dict[str, Any]:
    """The contract for programs."""
    outcomes = {0: "clean", 2: "unreadable", 3: "bad"}
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "outcome": outcomes[exit_code(reports)],
        "files": [
            {
                "path": str(report.path),
                "error": report.error,
                "not_checked": [{"name": name, "reason": why} for name, why in report.unread],
                "dangers": list(report.dangers),
                "values": report.values,
                "items": [_item(item) for item in report.items],
            }
            for report in reports
        ],
    }
    if comparison is not None:
        made["against"] = {
            "went_bad": comparison.went_bad,
            "was_bad": comparison.was_bad,
            "grew": [{"name": n, "old_rms": o, "new_rms": r} for n, o, r in comparison.grew],
            "reshaped": comparison.reshaped,
            "added": comparison.added,
            "removed": comparison.removed,
            "not_compared": comparison.unread,
        }
    return made


def _number(value: float | None) -> float | str | None:
    """JSON has no infinity: by name, as everywhere in whynan's reports."""
    return value if value is None or math.isfinite(value) else kind_of(value)


def _item(item: Item) -> dict[str, Any]:
    summary, stats = item.summary, item.summary.stats
    return {
        "name": item.name,
        "shape": stats.shape,
        "dtype": stats.dtype,
        "min": _number(stats.min),
        "max": _number(stats.max),
        "mean": _number(summary.mean),
        "std": _number(summary.std),
        "nan": stats.nan,
        "posinf": stats.posinf,
        "neginf": stats.neginf,
        "zeros": stats.zeros,
        "subnormals": summary.subnormals,
        "first_bad": summary.first_bad,
        "troubles": [{"kind": t.kind, "text": t.text, "fault": t.fault} for t in item.troubles],
    }
