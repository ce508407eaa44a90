"""Where the results of a run go: JSON, HTML, a recording, TensorBoard, a capsule, services."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from whynan import voice
from whynan.errors import UsageError
from whynan.files import write_atomically
from whynan.model import Diagnosis
from whynan.recording import Recording
from whynan.run.laid import Aside
from whynan.run.poured import Poured

if TYPE_CHECKING:
    from whynan.report.live_board import LiveBoard
    from whynan.report.remarks import Format
    from whynan.watching.watch import Watch

Mode = Literal["auto", "trace", "guard"]
Policy = Literal["stop", "skip", "warn"]
PATHS = ("json", "html", "tensorboard", "recording", "capsule", "save_batch", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a program."""

    mode: Mode = "auto"
    on_anomaly: Policy = "stop"
    json: Path | None = None
    poured: Poured | None = None  # where that goes at the end, for `--json -`
    html: Path | None = None
    tensorboard: Path | None = None
    recording: Path | None = None
    capsule: Path | None = None
    save_batch: Path | None = None
    format: Format | None = None  # for a service, too
    output: Path | None = None  # where that goes; None: to standard error
    keep_operands: bool = False  # in the recording, of what made the first bad value
    max_steps: int | None = None
    rerun: bool | None = None  # run the program once more; None: if it did not take long
    enough: tuple[int, float] | None = None  # from this step on, stop after so many seconds
    trace_from: int | None = None  # a second run: record from this step on
    aside: Aside | None = None  # a second run: where it writes instead
    climb: int | None = None  # a third run: the step of which eager mode shows something else
    finite_from: int | None = None  # a trial: from this step on every loss must be finite
    live_steps: int | None = None  # how many steps `auto` records before it only guards
    live_operations: int | None = None  # and how many operations, where there are no steps
    fixes_follow: bool = False  # changes are tried right after the report
    is_quiet: bool = False  # no closing line
    is_shown: bool = True  # False: whoever started this run draws the report
    speaker: int = 0  # the rank that tells of a job that ends healthy
    rank_command: tuple[str, ...] = ()  # a trial: what its ranks are started by

    @property
    def operands_are_kept(self) -> bool:
        return self.keep_operands or self.capsule is not None

    def from_here(self) -> RunOptions:
        """With the paths as they are meant where the command is given: the program may go elsewhere."""
        given = {name: getattr(self, name) for name in PATHS}
        return replace(
            self, **{n: p.absolute() for n, p in given.items() if p is not None and str(p) != "-"}
        )

    def for_ranks(self) -> list[str]:
        """For Python's command line: a rank that is a program of its own, with the same options."""
        if self.rank_command:
            return list(self.rank_command)
        flags = ["--mode", self.mode, "--on-anomaly", self.on_anomaly]
        for name in (*PATHS, "max_steps", "climb"):
            if (value := getattr(self, name)) is not None:
                flags += [f"--{name.replace('_', '-')}", str(value)]
        if self.format is not None:
            flags += ["--format", self.format]
        if self.aside is not None:
            flags += ["--aside", self.aside.folder, str(self.aside.since_s)]
        return ["-m", "whynan", "run", *flags, *["--keep-operands"] * self.keep_operands]


class Outputs:
    """What the options ask for. A file that cannot be written costs a line, not the run."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._board: LiveBoard | None = None

    def check(self) -> None:
        """Before hours of training: can all of it be written at the end?"""
        capsule = self.options.capsule
        if capsule is not None:
            if self.options.mode == "trace":
                raise UsageError(
                    "--capsule needs --mode auto or guard, which know the step's start"
                )
            if importlib.util.find_spec("safetensors") is None:
                raise UsageError("--capsule needs safetensors: pip install safetensors")
            if capsule.exists() and not capsule.is_dir():
                raise UsageError(f"--capsule {capsule}: there is a file of that name")
        for option in ("json", "html", "recording", "save_batch", "output"):
            path: Path | None = getattr(self.options, option)
            if path is not None and not path.absolute().parent.is_dir():
                folder = path.absolute().parent
                name = option.replace("_", "-")
                raise UsageError(f"--{name} {path}: the folder {folder} does not exist")

    def open_board(self, watch: Watch) -> None:
        """TensorBoard's events are written while the program runs."""
        if self.options.tensorboard is None:
            return
        from whynan.report.event_file import EventFile
        from whynan.report.live_board import SELDOM, LiveBoard
        from whynan.watching.layers import LayersOf

        layers = LayersOf(watch, [])
        events = EventFile(self.options.tensorboard)
        self._board = LiveBoard(events, layers.spreads, layers.rows, rows_every=SELDOM)

    def draw(self, step: int) -> None:
        """After each step."""
        if self._board is not None:
            self._board.step(step)

    def finish_board(self) -> None:
        if self._board is not None:
            self._board.flush()

    @property
    def are_wanted(self) -> bool:
        options = self.options
        files = options.json or options.html or options.recording or options.tensorboard
        return bool(files or options.format)

    def write(self, diagnosis: Diagnosis, recording: Recording, *, is_last: bool) -> None:
        """Events cannot be replaced, so they wait for the last time."""
        options = self.options
        if self._board is not None and is_last:
            self._board.report(diagnosis)
        events = options.tensorboard if is_last and self._board is None else None
        reports = {"json_report": options.json, "html": options.html, "tensorboard": events}
        for name, path in reports.items():
            if path is not None:
                _write(path, partial(_report, name, diagnosis, path))
        if (path := options.recording) is not None:
            _write(path, lambda: recording.of(diagnosis).save(path))
        if is_last and options.format is not None:
            _write(
                options.output or options.format,
                partial(self._for_service, diagnosis, options.format),
            )

    def _for_service(self, diagnosis: Diagnosis, style: Format) -> None:
        from whynan.report.remarks import as_format

        text, path = as_format(diagnosis, style), self.options.output
        if path is None:
            voice.report(voice.visible(text))
        else:
            write_atomically(path, text)
            voice.say(f"wrote {os.path.relpath(path)}")


def fill_capsule(
    folder: Path, watch: Watch, command: list[str], recording: Callable[[], Recording]
) -> None:
    """What repeats the step elsewhere, and what was recorded of it; what does not fit is left out."""

    def fill() -> None:
        from whynan.watching import capsule

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for write in capsule.parts(folder, watch, command):
            _write(f"the capsule {folder}", write)

    _write(f"the capsule {folder}", fill)
    if folder.is_dir():
        path = folder / "recording.json"
        _write(path, lambda: recording().save(path, private=True))


def _write(what: object, write: Callable[[], None]) -> None:
    """One for itself: a full disk, a missing library or a fault of ours takes no other along."""
    try:
        write()
    except Exception as error:
        voice.say(f"could not write {what}: {error}")


def _report(name: str, diagnosis: Diagnosis, path: Path) -> None:
    import_module(f"whynan.report.{name}").write(diagnosis, path)
