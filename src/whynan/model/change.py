"""A change to the source, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ADVICE = "advice"  # the kind of a fix that is a sentence: no change of a line mends it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A proposed change to the source, and what is known about it."""

    kind: str
    title: str
    patch: str | None = None
    verdict: Literal["verified", "failed", "not_tried"] = "not_tried"
    evidence: str = "not verified: suggested by the rule; `whynan fix` tries changes"
