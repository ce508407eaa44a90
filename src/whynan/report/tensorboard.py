"""The run for TensorBoard: scalars over steps, and the report as text at the failing step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol

from whynan.errors import WhynanError
from whynan.explain.story import tell
from whynan.model import Anomaly, Diagnosis, HistoryRow
from whynan.report import terminal
from whynan.report.charts import NOT_DRAWN, series


class Writer(Protocol):
    """The part of `torch.utils.tensorboard.SummaryWriter` that is used."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None) -> Any: ...

    def add_text(self, tag: str, text_string: str, global_step: Any = None) -> Any: ...


def write(diagnosis: Diagnosis, folder: Path) -> None:
    """Event files in `folder`, which `tensorboard --logdir` shows."""
    writer = _EventWriter(folder)
    try:
        send(diagnosis, writer)
    finally:
        writer.close()


def send(diagnosis: Diagnosis, writer: Writer) -> None:
    """The same into a writer that is open already, such as the program's own."""
    send_rows(diagnosis.history, writer)
    send_reports(diagnosis.anomalies, writer)


def send_rows(history: tuple[HistoryRow, ...], writer: Writer) -> None:
    """Scalars of these steps."""
    for name in [f.name for f in dataclasses.fields(HistoryRow) if f.name not in NOT_DRAWN]:
        for step, value in series(history, name):
            writer.add_scalar(f"whynan/{name}", value, step)
    for row in history:
        for parameter, (gradient, weight) in (row.layers or {}).items():
            writer.add_scalar(f"whynan.gradient/{parameter}", gradient, row.step)
            writer.add_scalar(f"whynan.weight/{parameter}", weight, row.step)


def send_reports(anomalies: tuple[Anomaly, ...], writer: Writer) -> None:
    """Each as text at its step."""
    for anomaly in anomalies:
        text = terminal.to_text(terminal.draw([tell(anomaly)]))
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # code, in Markdown
        writer.add_text(f"whynan/{anomaly.finding.code}", indented, anomaly.evidence.step)


class _EventWriter:
    """TensorBoard's own event files, written without torch."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise WhynanError(
                "TensorBoard is not installed here: `pip install tensorboard`"
            ) from error
        self._file = EventFileWriter(str(folder), filename_suffix=".whynan")

    def add_scalar(self, tag: str, scalar_value: float, global_step: int = 0) -> None:
        self._add(global_step, tag=tag, simple_value=scalar_value)

    def add_text(self, tag: str, text_string: str, global_step: int = 0) -> None:
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        plugin = SummaryMetadata.PluginData(plugin_name="text")
        text = TensorProto(dtype="DT_STRING", string_val=[text_string.encode("utf-8", "replace")])
        self._add(global_step, tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=text)

    def _add(self, step: int, **value: Any) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(**value)])
        self._file.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._file.close()
