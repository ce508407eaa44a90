"""Joins the stages: the only file that knows their order."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from whynan import launch
from whynan.diagnosis.engine import explain_evidence
from whynan.errors import StopRun, UsageError, WhynanError
from whynan.explain.story import tell
from whynan.model import Diagnosis, Evidence, Outcome
from whynan.recording import Recording
from whynan.version import __version__

if TYPE_CHECKING:
    from whynan.record.session import Session

Policy = Literal["stop", "warn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a program."""

    mode: Literal["trace"] = "trace"
    on_anomaly: Policy = "stop"
    json: Path | None = None
    max_steps: int | None = None


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


class Run:
    """One program under the tracer."""

    def __init__(self, program: launch.Program, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self.session: Session | None = None
        self._pid = os.getpid()
        self._printed = 0
        self._stopped_by_limit = False
        self._ending = False
        self._recording = Recording()

    def go(self) -> int:
        """Run it and return the exit code."""
        self._check_paths()
        try:
            run = launch.prepare(self.program)
        except UsageError:
            raise
        except BaseException as failure:  # a package's own __init__ failed
            return self._end(failure)
        for name in [n for n in sys.modules if n.split(".")[0] == "click"]:
            del sys.modules[name]  # the program may have a module of that name
        hook = launch.AfterImport("torch", self._start)
        hook.install()
        original_exit = os._exit
        os._exit = self._hard_exit(original_exit)  # type: ignore[assignment]  # never returns
        error: BaseException | None = None
        try:
            run()
            launch.wait_for_threads()
        except BaseException as raised:
            error = raised
        finally:
            hook.remove()
            os._exit = original_exit
        return self._end(error)

    def _check_paths(self) -> None:
        path = self.options.json
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"--json {path}: the folder {path.absolute().parent} does not exist")

    # ---- while it runs ----------------------------------------------------------------

    def _start(self) -> None:
        """Called right after the program imported torch."""
        try:
            from whynan.record.session import Session

            session = Session(on_evidence=self._found)
            session.tracer.on_step_back = self._aside
            session.optimizers.on_step = self._stepped
            session.start()
        except Exception as error:
            self._aside(error)
        else:
            self.session = session

    def _found(self, evidence: Evidence) -> None:
        assert self.session is not None
        self._recording = self.session.recording()
        if not self._ending:  # else the program's own traceback comes first
            self._show()
            self._write("anomaly")
        if self.options.on_anomaly == "stop":
            self.session.request_stop()
            raise StopRun

    def _stepped(self, step: int) -> None:
        if self.options.max_steps is not None and step >= self.options.max_steps:
            self._stopped_by_limit = True
            raise StopRun

    def _aside(self, error: BaseException) -> None:
        self._say(f"stepped aside after an error of its own, the script goes on: {error!r}")

    def _hard_exit(self, original: Callable[[int], NoReturn]) -> Callable[[int], None]:
        """`os._exit` skips everything; save the report first."""

        def leave(code: int) -> None:
            if os.getpid() == self._pid:
                if self.session is not None:
                    self._recording = self.session.recording()
                self._write("anomaly" if self._recording.evidence else "clean")
                code = 3 if self._recording.evidence else code
            original(code)

        return leave

    # ---- at the end -------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> int:
        self._ending = True
        stopped = isinstance(error, StopRun)
        if self.session is not None:
            try:
                self.session.stop(None if stopped else error)
            except StopRun:
                pass
            self._recording = self.session.recording()
        harmed = bool(self._recording.evidence)
        crashed = (
            error is not None
            and not stopped
            and not isinstance(error, (SystemExit, KeyboardInterrupt))
        )
        if crashed and error is not None:
            launch.print_traceback(error)
        self._show()
        self._write("anomaly" if harmed else "crashed" if crashed else "clean")
        if self._stopped_by_limit and not harmed:
            self._say(f"no harm in {self._recording.steps} steps; stopped as --max-steps asked")
        if harmed:
            for note in self._recording.notes:
                self._say(note)
            return 3
        if isinstance(error, KeyboardInterrupt):
            launch.print_traceback(error)
            sys.stdout.flush()
            launch.die_of_interrupt()
        if isinstance(error, SystemExit):
            raise error
        return 1 if crashed else 0

    def _show(self) -> None:
        """Print the anomalies that were not printed yet."""
        new = self._recording.evidence[self._printed :]
        if not new:
            return
        self._printed += len(new)
        from whynan.report import terminal

        part = diagnose(replace(self._recording, evidence=new))
        sys.stdout.flush()
        terminal.write(terminal.draw([tell(a) for a in part.anomalies]), sys.stderr)

    def _write(self, outcome: Outcome) -> None:
        if self.options.json is None:
            return
        from whynan.report import json_report

        result = diagnose(self._recording, script=self.program.target, outcome=outcome)
        try:
            json_report.write(replace(result, mode=self.options.mode), self.options.json)
        except OSError as error:
            self._say(f"could not write {self.options.json}: {error}")

    @staticmethod
    def _say(text: str) -> None:
        print(f"whynan: {text}", file=sys.stderr)
