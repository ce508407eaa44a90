"""transformers: `Trainer(..., callbacks=[WhynanCallback()])`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from whynan.adapters import trackers
from whynan.adapters.between_hooks import Callback, write_report
from whynan.model import Diagnosis

FILTERED = (
    "the Trainer leaves NaN losses out of its log (logging_nan_inf_filter is on by default), so "
    "the logged loss may look healthy; logging_nan_inf_filter=False shows them"
)


class WhynanCallback(Callback, TrainerCallback):
    """Guards `trainer.train()`; a bad step is repeated, recorded and explained.

    `stop` ends the training with `AnomalyFound`, `skip` leaves the bad batch out, `warn` goes on.
    The report is written into `output_dir`, and to TensorBoard, wandb and MLflow if the Trainer
    reports there; `capsule` is a folder that keeps the bad batch with what else it takes to repeat
    the step.
    """

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        optimizer: Any = None,
        **kw: Any,
    ) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        self._guarded.start(model, [inner] if inner is not None else [], lambda d: attach(d, args))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guarded.check(_notes(args))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guarded.end()
        self._guarded.check(_notes(args))


def _notes(args: Any) -> tuple[str, ...]:
    return (FILTERED,) if args.logging_nan_inf_filter else ()


def attach(diagnosis: Diagnosis, args: Any) -> None:
    """Files in the output folder, events beside the Trainer's own."""
    diagnosis = replace(diagnosis, notes=(*diagnosis.notes, *_notes(args)))
    write_report(diagnosis, Path(args.output_dir))
    folder = getattr(args, "logging_dir", None)
    if folder and "tensorboard" in (args.report_to or ()):
        from whynan.report import tensorboard

        tensorboard.write(diagnosis, Path(folder))
    trackers.to_open_runs(diagnosis, list(args.report_to or ()))
