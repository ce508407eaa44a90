"""The run for TensorBoard: scalars and histograms over steps, and the report as text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from whynan.explain.story import tell, typed
from whynan.model import Diagnosis, HistoryRow, LayerSpread
from whynan.report import terminal
from whynan.report.charts import DRAWN, series
from whynan.report.event_file import EventFile


class Writer(Protocol):
    """The part of `torch.utils.tensorboard.SummaryWriter` that is used."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> Any: ...

    def add_text(self, tag: str, text_string: str, global_step: Any = None) -> Any: ...


def write(diagnosis: Diagnosis, folder: Path) -> None:
    """Event files in `folder`, which `tensorboard --logdir` shows."""
    writer = EventFile(folder)
    try:
        send(diagnosis, writer)
    finally:
        writer.close()


def send(diagnosis: Diagnosis, writer: Writer) -> None:
    """The same into a writer that is open already, such as the program's own."""
    send_rows(diagnosis.history, writer)
    send_reports(diagnosis, writer)


def send_rows(history: tuple[HistoryRow, ...], writer: Writer) -> None:
    """Scalars of these steps."""
    for name in DRAWN:
        for step, value in series(history, name):
            writer.add_scalar(f"whynan/{name}", value, step)
    for row in history:
        for parameter, (gradient, weight) in (row.layers or {}).items():
            writer.add_scalar(f"whynan.gradient/{parameter}", gradient, row.step)
            writer.add_scalar(f"whynan.weight/{parameter}", weight, row.step)


def send_spreads(spreads: Iterable[LayerSpread], step: int, writer: Any) -> None:
    """A histogram for each layer's weights and gradients."""
    for s in spreads:
        writer.add_histogram_raw(
            f"whynan.{s.kind}/{s.layer}", min=s.min, max=s.max, num=sum(s.counts), sum=s.sum,
            sum_squares=s.sum_squares, bucket_limits=s.limits, bucket_counts=s.counts,
            global_step=step,
        )  # fmt: skip


def send_reports(diagnosis: Diagnosis, writer: Writer) -> None:
    """Each as text at its step."""
    for anomaly in diagnosis.anomalies:
        text = terminal.to_text(terminal.draw([tell(anomaly, typed(diagnosis))]))
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # code, in Markdown
        writer.add_text(f"whynan/{anomaly.finding.code}", indented, anomaly.evidence.step)
