"""What changed between two checkpoints: which arrays went bad, and which grew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whynan.checking.files import FileReport
from whynan.checking.verdicts import Item
from whynan.model import number

GROWTH = 10.0  # times in root mean square


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Names in the order of the new file."""

    went_bad: tuple[str, ...]
    was_bad: tuple[str, ...]
    grew: tuple[tuple[str, float, float], ...]  # name, old and new root mean square
    reshaped: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    unread: tuple[str, ...] = ()  # files, and arrays in them, of which nothing can be said

    def lines(self) -> list[str]:
        """In words; empty when nothing of note changed."""
        lines = [
            *(f"  not compared: {what}, which could not be checked" for what in self.unread),
            *_listed("went bad since", self.went_bad),
            *_listed("bad already in", self.was_bad),
            *(f"  grew {number(new / old)} x: {name}, rms {number(old)} to {number(new)}" for name, old, new in self.grew),
            *_listed("other shape than in", self.reshaped),
            *_listed("not in", self.added),
            *_listed("only in", self.removed),
        ]  # fmt: skip
        return lines


def _listed(what: str, names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return [f"  {what} OLD: {', '.join(names[:5])}{more}"]


def rms(item: Item) -> float:
    """Root mean square of the finite values."""
    mean, std = item.summary.mean or 0.0, item.summary.std or 0.0
    return float((mean * mean + std * std) ** 0.5)


def compare(new: Iterable[FileReport], old: Iterable[FileReport]) -> Comparison:
    """Match arrays by name."""
    new, old = tuple(new), tuple(old)
    before = {item.name: item for report in old for item in report.items}
    after = {item.name: item for report in new for item in report.items}
    both = [(after[name], before[name]) for name in after if name in before]
    # What was not read may well be there.
    added = () if _unread(old) else tuple(name for name in after if name not in before)
    removed = () if _unread(new) else tuple(name for name in before if name not in after)
    return Comparison(
        went_bad=tuple(a.name for a, b in both if a.faults and not b.faults),
        was_bad=tuple(a.name for a, b in both if a.faults and b.faults),
        grew=tuple(
            (a.name, rms(b), rms(a)) for a, b in both if 0 < rms(b) * GROWTH < rms(a) < float("inf")
        ),
        reshaped=tuple(a.name for a, b in both if a.summary.stats.shape != b.summary.stats.shape),
        added=added,
        removed=removed,
        unread=(*_unread(new), *_unread(old)),
    )


def _unread(reports: tuple[FileReport, ...]) -> tuple[str, ...]:
    files = [str(report.path) for report in reports if report.error is not None]
    return *files, *(f"{name} in {report.path}" for report in reports for name, _ in report.unread)
