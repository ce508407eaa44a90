"""Joins the stages: the only file that knows their order."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from whynan.diagnosis.engine import explain_evidence
from whynan.errors import WhynanError
from whynan.explain.story import tell
from whynan.model import Diagnosis, Evidence, OpRecord, Outcome, Phase
from whynan.recording import Recording
from whynan.version import __version__

if TYPE_CHECKING:
    from whynan.watch.guard import Seen


def diagnose(
    recording: Recording, *, script: str = "", outcome: Outcome | None = None
) -> Diagnosis:
    """Explain every harm in a recording.

    >>> diagnose(Recording()).outcome
    'clean'
    """
    anomalies = tuple(explain_evidence(evidence) for evidence in recording.evidence)
    versions = {"whynan": __version__, "python": platform.python_version()}
    if recording.torch_version:
        versions["torch"] = recording.torch_version
    return Diagnosis(
        anomalies=anomalies,
        outcome="anomaly" if anomalies else outcome or "clean",
        steps=recording.steps,
        script=script,
        history=recording.history,
        versions=versions,
        notes=recording.notes,
    )


def render_text(diagnosis: Diagnosis) -> str:
    """The terminal report without colour."""
    from whynan.report import terminal

    if not diagnosis.anomalies:
        return f"whynan: no harm found in {diagnosis.steps} steps\n"
    return terminal.to_text(terminal.draw([tell(a) for a in diagnosis.anomalies], diagnosis.notes))


def _need_torch() -> None:
    try:
        import torch  # noqa: F401  # only to see that it is there
    except ImportError as error:
        raise WhynanError(
            "tracing needs PyTorch, which is not installed here; "
            "install the build you train with, or `pip install whynan[torch]`"
        ) from error


PHASE_OF_SINK: dict[str, Phase] = {"gradient": "backward", "parameter": "optimizer"}


def unseen(seen: Seen, why: str) -> Evidence:
    """Harm that only the guard saw: what is known of it, and that the rest is not."""
    from whynan.record.sites import site_of

    origin = OpRecord(
        index=-1,
        op="unseen",
        phase=PHASE_OF_SINK.get(seen.sink, "forward"),
        step=seen.step,
        site=None,
    )
    return Evidence(
        sink=seen.sink,
        subject=seen.subject,
        step=seen.step,
        origin=origin,
        origin_kind="unseen",
        sink_site=site_of(seen.frames) if seen.frames is not None else None,
        sink_value=seen.value,
        incomplete=why,
    )


class Trace:
    """The recording of a `with whynan.trace()` block; complete when the block has ended."""

    def __init__(self) -> None:
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        if self._recording is None:
            raise WhynanError("the traced block has not ended; diagnose it after the `with`")
        return self._recording


@contextmanager
def trace() -> Iterator[Trace]:
    """Record every operation of a block.

    with whynan.trace() as recording:
        loss = step(batch)
    print(whynan.diagnose(recording))
    """
    _need_torch()
    from whynan.record.session import Session

    session, result, error = Session(), Trace(), None
    session.start()
    try:
        yield result
    except BaseException as raised:
        error = raised
        raise
    finally:
        session.stop(error)
        result._recording = session.recording()


def diagnose_trace(recording: Trace | Recording) -> Diagnosis:
    """Name the origin of every harm that a traced block held."""
    return diagnose(recording.recording if isinstance(recording, Trace) else recording)
