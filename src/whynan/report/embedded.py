"""A report in IPython, where an exception carries it: drawn in a notebook, as text in a terminal."""

from __future__ import annotations

import sys
from typing import Any

from whynan.model import Diagnosis
from whynan.report.plain import render_text


def in_notebook(diagnosis: Diagnosis, *, is_drawn: bool) -> list[str]:
    """What stands in the place of a traceback; a notebook shows the report itself above it."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return render_text(diagnosis).splitlines()
    if not is_drawn:
        ipython.display.display(diagnosis)
    return [f"AnomalyFound: {anomaly.finding.headline}" for anomaly in diagnosis.anomalies]
