"""Lightning: `Trainer(callbacks=[WhynanCallback()])`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from whynan.adapters import between_hooks, trackers
from whynan.adapters.between_hooks import write_report
from whynan.model import Diagnosis


class WhynanCallback(between_hooks.Callback, Callback):
    """Guards `trainer.fit`; a bad step is repeated, recorded and explained.

    `stop` ends the fit with `AnomalyFound`, `skip` leaves the bad batch out, `warn` goes on. The
    report goes to the trainer's loggers; `capsule` is a folder that keeps the bad batch with
    what else it takes to repeat the step.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.start(pl_module, trainer.optimizers, lambda found: attach(found, trainer))

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._guarded.check()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.end()
        self._guarded.check()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._guarded.end()


def attach(diagnosis: Diagnosis, trainer: Any) -> None:
    """As text and curves to TensorBoard, as artifacts to wandb and MLflow, as files to what has a folder."""
    from whynan.report import tensorboard

    for logger in trainer.loggers:
        experiment: Any = getattr(logger, "experiment", None)
        if hasattr(experiment, "add_text"):
            tensorboard.send(diagnosis, experiment)
        elif trackers.is_of("wandb", experiment):
            trackers.to_run(diagnosis, experiment)
        elif trackers.is_of("mlflow", experiment):
            trackers.to_client(diagnosis, experiment, logger.run_id)
        folder = getattr(logger, "log_dir", None)
        if folder:
            write_report(diagnosis, Path(folder))
