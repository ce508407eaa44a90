"""What whynan answers: findings about the evidence, with their causes and fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from whynan.model.change import Fix
from whynan.model.circumstances import HistoryRow
from whynan.model.evidence import Evidence, OpRecord, Site

Outcome = Literal["clean", "anomaly", "crashed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why the operands were like that, with the evidence for saying so."""

    code: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule's claim about an origin; the engine adds which rule it was."""

    headline: str
    code: str = ""
    slug: str = ""
    mechanism: str = ""
    observed: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    label: str = ""  # under the carets
    culprit: int | None = None  # which input explains it
    causes: tuple[Cause, ...] = ()
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One stage of the chain: where, what, and the witness's value there."""

    site: Site | None
    op: str
    value: float | None
    note: str
    role: Literal["reason", "origin", "path", "sink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One harm, fully explained."""

    evidence: Evidence
    finding: Finding
    chain: tuple[Link, ...]

    @property
    def origin(self) -> OpRecord:
        return self.evidence.origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The answer: what went wrong first, or that nothing did."""

    anomalies: tuple[Anomaly, ...]
    outcome: Outcome
    steps: int
    script: str
    mode: str = "trace"
    reproduced: str = "live"
    history: tuple[HistoryRow, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, str] = field(
        default_factory=dict
    )  # command, time, host and devices, in words
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True when an anomaly was found."""
        return bool(self.anomalies)

    def __str__(self) -> str:
        from whynan.report.plain import render_text

        return render_text(self)

    def to_html(self) -> str:
        """The whole report as one web page that loads nothing."""
        from whynan.report import html

        return html.page(self)

    def to_json(self) -> str:
        """The report as strict JSON, schema `whynan.report/1`."""
        from whynan.report import json_report

        return json_report.dumps(self)

    def save(self, path: str | Path) -> None:
        """Write it: a page for `.html`, JSON for `.json`, else the text that `print` shows.

        >>> Diagnosis(anomalies=(), outcome="clean", steps=3, script="").save("/dev/null")
        """
        from whynan.report.plain import save

        save(self, Path(path))

    def _repr_html_(self) -> str:
        """How a notebook shows it; `print` gives the text."""
        from whynan.report import html

        return html.fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
