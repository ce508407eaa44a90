"""What a traced block left behind: evidence and history, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass

from whynan.model import Evidence, HistoryRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The evidence of every harm, oldest first, and the run in numbers."""

    evidence: tuple[Evidence, ...] = ()
    steps: int = 0
    history: tuple[HistoryRow, ...] = ()
    torch_version: str | None = None
    notes: tuple[str, ...] = ()
