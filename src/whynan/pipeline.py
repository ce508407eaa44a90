"""Joins the stages: the only file that knows their order."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whynan.diagnosis.engine import explain_evidence
from whynan.errors import AnomalyFound, StopRun, UsageError, WhynanError
from whynan.explain.story import no_harm, tell
from whynan.model import Diagnosis, Evidence, OpRecord, Outcome, Phase
from whynan.recording import Recording
from whynan.version import __version__

if TYPE_CHECKING:
    from whynan.record.session import Session
    from whynan.report.live_board import LiveBoard
    from whynan.watching.escalate import Watch
    from whynan.watching.guard import Seen


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
        return f"whynan: {no_harm(diagnosis.steps)}\n"
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
    caller = sys._getframe(2)  # of `__enter__`, which is of this generator
    session.start()
    try:
        yield result
        session.look_at_results(caller.f_locals)
    except BaseException as raised:
        error = raised
        raise
    finally:
        del caller
        session.stop(error)
        result._recording = session.recording()


class Watching:
    """A `with whynan.watch(...)` block: what was found in it, and which steps were skipped."""

    def __init__(self) -> None:
        self.diagnosis: Diagnosis | None = None
        self.skipped: list[int] = []


@contextmanager
def watch(
    model: Any = None,
    optimizer: Any = None,
    *,
    on_anomaly: Literal["stop", "skip", "warn"] = "stop",
    capsule: str | Path | None = None,
    tell: Callable[[Diagnosis], None] | None = None,
    writer: Any = None,
) -> Iterator[Watching]:
    """Guard your own training loop; a bad step is repeated, recorded and explained.

    with whynan.watch(model, optimizer):
        for x, y in loader:
            ...

    `stop` raises `AnomalyFound`, which carries the diagnosis; `skip` leaves the bad batch out and
    goes on; `warn` prints the report and goes on. `model` and `optimizer` may be lists. The first
    bad step is kept in the folder `capsule`; `tell` gets each diagnosis instead of standard error.
    `writer` is a `SummaryWriter`: scalars of all steps, sent now and then, histograms of the layers
    once in a while, and the report at the failing step.
    """
    _need_torch()
    from whynan.children import optimizers_of, optimizers_so_far
    from whynan.watching.escalate import Watch

    if on_anomaly not in ("stop", "skip", "warn"):
        raise UsageError(f"on_anomaly is {on_anomaly!r}; it can be stop, skip or warn")
    result = Watching()
    guard: Watch

    def conclude(recording: Recording, how: str) -> None:
        first = result.diagnosis is None
        result.diagnosis = replace(diagnose(recording), mode="auto", reproduced=how)
        if live is not None:
            live.report(result.diagnosis)
        if first and capsule is not None:
            _keep(Path(capsule), guard, recording.of(result.diagnosis))
        if on_anomaly == "stop":
            raise StopRun
        newest = replace(result.diagnosis, anomalies=result.diagnosis.anomalies[-1:])
        if tell is not None:
            tell(newest)
            return
        sys.stdout.flush()
        sys.stderr.write(str(newest))

    def found(evidence: Evidence, how: str) -> None:
        conclude(guard.recording(), how)

    def unexplained(seen: Seen) -> None:
        if seen.certain:
            why = "the step could not be repeated in place"
            conclude(replace(guard.recording(), evidence=(unseen(seen, why),)), "no")

    guard = Watch(policy=on_anomaly, found=found, unexplained=unexplained)
    guard.on_error = lambda error: print(
        f"whynan: stepped aside after an error of its own: {error!r}", file=sys.stderr
    )
    live: LiveBoard | None = None
    if writer is not None:
        from whynan.report.live_board import LiveBoard
        from whynan.watching.layers import spreads

        live = LiveBoard(
            writer,
            lambda: spreads(
                _listed(model) or guard.session.modules.roots(), guard.guard.optimizers
            ),
            lambda: guard.recording().history,
        )
        guard.on_step = unrecorded(guard.session, live.step)
    known = _listed(optimizer)
    if not known and model is not None:
        known = optimizers_of(_listed(model))
    elif not known and threading.active_count() == 1:  # else somebody may be making one
        known = optimizers_so_far()
    guard.start(_listed(model), known)
    error: BaseException | None = None
    try:
        yield result
    except BaseException as raised:
        error = raised
    try:
        guard.stop(None if isinstance(error, StopRun) else error)
    except StopRun as stopped:
        error = error or stopped
    if live is not None:
        live.flush()
    result.skipped = list(guard.skipped)
    # A bare `except:` in the loop may have kept the request to stop from coming here.
    is_over = isinstance(error, StopRun) or (error is None and on_anomaly == "stop")
    if is_over and result.diagnosis is not None:
        raise AnomalyFound(result.diagnosis) from None
    if error is not None:
        raise error


def unrecorded(session: Session, work: Callable[[int], None]) -> Callable[[int], None]:
    """Whynan's own work after a step, also while the program is recorded."""

    def after(step: int) -> None:
        if session.tracer.active:
            session.checks.quietly(lambda: work(step))
        else:
            work(step)

    return after


def _keep(folder: Path, guard: Watch, recording: Recording) -> None:
    """What repeats the first bad step elsewhere."""
    from whynan.watching import capsule

    try:
        capsule.write(folder, guard, sys.argv)
        recording.save(folder / "recording.json")
    except (OSError, ImportError, ValueError, RuntimeError) as error:
        print(f"whynan: could not write the capsule {folder}: {error}", file=sys.stderr)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def diagnose_trace(recording: Trace | Recording) -> Diagnosis:
    """Name the origin of every harm that a traced block held."""
    return diagnose(recording.recording if isinstance(recording, Trace) else recording)
