"""The terminal report as plain text."""

from __future__ import annotations

from whynan.explain.story import in_short, no_harm, tell
from whynan.model import Diagnosis


def render_text(diagnosis: Diagnosis) -> str:
    """The terminal report without colour."""
    if not diagnosis.anomalies:
        return f"whynan: {no_harm(diagnosis.steps)}\n"
    try:
        from whynan.report import terminal

        stories = [tell(a) for a in diagnosis.anomalies]
        return terminal.to_text(terminal.draw(stories, diagnosis.notes))
    except Exception as error:
        return in_short([a.evidence for a in diagnosis.anomalies], error)
