"""A saved run, drawn again: the same report that the run itself gave."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import IO

from whynan.diagnosis.engine import diagnose
from whynan.errors import UsageError
from whynan.explain.story import tell, typed
from whynan.model import Diagnosis
from whynan.recording import load
from whynan.report.plain import render_text


def reopen(path: Path) -> Diagnosis:
    """Read a recording, or the one in a capsule, and explain it as the run itself did."""
    recording = load(path / "recording.json" if path.is_dir() else path)
    result = diagnose(recording, script=recording.script, outcome=recording.outcome)
    return replace(
        result,
        mode=recording.mode or result.mode,
        reproduced=recording.reproduced or result.reproduced,
        versions=recording.versions or result.versions,
        run=recording.run,
    )


def show(diagnosis: Diagnosis, stream: IO[str]) -> None:
    """The terminal report, in colour where the stream has it."""
    from whynan.report import sparkline, terminal

    if diagnosis.anomalies:
        stories = [tell(anomaly, typed(diagnosis)) for anomaly in diagnosis.anomalies]
        columns = shutil.get_terminal_size().columns if stream.isatty() else None
        lines = terminal.draw(stories, diagnosis.notes, width=terminal.width_of(columns))
        terminal.write(lines, stream)
    else:
        stream.write(render_text(diagnosis))
    terminal.write(sparkline.draw(diagnosis.history), stream)


def write(
    diagnosis: Diagnosis,
    *,
    json: Path | None = None,
    html: Path | None = None,
    tensorboard: Path | None = None,
) -> None:
    """The other ways to see it, each where it was asked for."""
    for name, path in (("json_report", json), ("html", html), ("tensorboard", tensorboard)):
        if path is not None:
            try:
                import_module(f"whynan.report.{name}").write(diagnosis, path)
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
