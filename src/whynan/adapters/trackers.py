"""The report for what keeps the runs: Weights & Biases and MLflow, through the run that is open."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whynan import voice
from whynan.adapters.between_hooks import write_report
from whynan.model import Diagnosis


def to_run(diagnosis: Diagnosis, run: Any) -> None:
    """A run of wandb: the files as an artifact, the headline in the summary."""

    def keep(folder: Path) -> None:
        run.log_artifact(str(folder), name=f"whynan-{run.id}", type="report")
        run.summary["whynan"] = _headline(diagnosis)

    _with_files(diagnosis, keep)


def to_client(diagnosis: Diagnosis, client: Any, run_id: str) -> None:
    """A run of MLflow: the files as artifacts in `whynan/`, the headline as a tag."""

    def keep(folder: Path) -> None:
        client.log_artifacts(run_id, str(folder), "whynan")
        client.set_tag(run_id, "whynan", _headline(diagnosis))

    _with_files(diagnosis, keep)


def to_open_runs(diagnosis: Diagnosis, names: list[str]) -> None:
    """The runs that these libraries have open, where they are among what the program reports to."""
    wandb, mlflow = (sys.modules.get(n) if n in names else None for n in ("wandb", "mlflow"))
    if wandb is not None and wandb.run is not None:
        to_run(diagnosis, wandb.run)
    if mlflow is not None and mlflow.active_run() is not None:
        to_client(diagnosis, mlflow.MlflowClient(), mlflow.active_run().info.run_id)


def is_of(library: str, thing: Any) -> bool:
    """Whether a thing is of this library, which is not imported to find out."""
    return type(thing).__module__.partition(".")[0] == library


def _with_files(diagnosis: Diagnosis, keep: Callable[[Path], None]) -> None:
    """A tracker that fails, as without network, takes nothing else along."""
    try:
        with tempfile.TemporaryDirectory(prefix="whynan-") as folder:
            write_report(diagnosis, Path(folder))
            keep(Path(folder))
    except Exception as error:
        voice.say(f"the report could not be handed on: {error!r}")


def _headline(diagnosis: Diagnosis) -> str:
    return diagnosis.anomalies[0].finding.headline if diagnosis.anomalies else diagnosis.outcome
