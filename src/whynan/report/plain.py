"""The terminal report as plain text."""

from __future__ import annotations

from pathlib import Path

from whynan.explain.story import in_short, no_harm, tell, typed
from whynan.files import write_atomically
from whynan.model import Diagnosis


def render_text(diagnosis: Diagnosis) -> str:
    """The terminal report without colour."""
    if not diagnosis.anomalies:
        return f"whynan: {no_harm(diagnosis.steps)}\n"
    try:
        from whynan.report import terminal

        stories = [tell(a, typed(diagnosis)) for a in diagnosis.anomalies]
        return terminal.to_text(terminal.draw(stories, diagnosis.notes))
    except Exception as error:
        return in_short([a.evidence for a in diagnosis.anomalies], error)


def save(diagnosis: Diagnosis, path: Path) -> None:
    """In the form that the name asks for."""
    ending = path.suffix.lower()
    if ending in (".html", ".htm"):
        from whynan.report import html

        html.write(diagnosis, path)
    elif ending == ".json":
        from whynan.report import json_report

        json_report.write(diagnosis, path)
    else:
        write_atomically(path, render_text(diagnosis))
