"""accelerate: `with watch(accelerator): ...` around the loop, after `prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whynan import voice
from whynan.adapters import trackers
from whynan.adapters.between_hooks import Policy, write_report
from whynan.model import Diagnosis
from whynan.run import blocks


@contextmanager
def watch(
    accelerator: Any, *, on_anomaly: Policy = "stop", capsule: str | Path | None = None
) -> Iterator[blocks.Watching]:
    """`whynan.watch` of all that the accelerator has prepared.

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with watch(accelerator):
        for batch in loader:
            ...

    The report goes to the accelerator's trackers, too.
    """
    optimizers = [getattr(o, "optimizer", o) for o in accelerator._optimizers]
    block = blocks.watch(
        list(accelerator._models), optimizers, on_anomaly=on_anomaly, capsule=capsule
    )
    with block as watching:
        try:
            yield watching
        finally:
            if watching.diagnosis is not None:
                try:
                    attach(watching.diagnosis, accelerator)
                except Exception as error:  # a full disk must not hide what was found
                    voice.say(f"the report could not be handed on: {error!r}")


def attach(diagnosis: Diagnosis, accelerator: Any) -> None:
    """To TensorBoard as text and curves, to wandb and MLflow as artifacts, as files in the project's folder."""
    from whynan.report import tensorboard

    for tracker in accelerator.trackers:
        if hasattr(tracker.tracker, "add_text"):
            tensorboard.send(diagnosis, tracker.tracker)
    trackers.to_open_runs(diagnosis, [tracker.name for tracker in accelerator.trackers])
    if accelerator.project_dir:
        write_report(diagnosis, Path(accelerator.project_dir))
