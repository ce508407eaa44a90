"""Blocks of the user's own program: `with whynan.trace()` and `with whynan.watch(...)`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whynan import voice
from whynan.diagnosis.engine import diagnose
from whynan.errors import AnomalyFound, StopRun, UsageError, WhynanError
from whynan.harm.ledger import SHOWS_NONFINITE
from whynan.model import Diagnosis, Evidence
from whynan.recording import EAGERLY, Recording
from whynan.run.outputs import fill_capsule
from whynan.seam.supported import need_torch
from whynan.seam.threads import is_alone

if TYPE_CHECKING:
    from whynan.harm.ledger import Sign
    from whynan.report.live_board import LiveBoard
    from whynan.watching.plan import Policy
    from whynan.watching.told import How
    from whynan.watching.watch import Watch

MAX_ITEMS = 1000  # of a collection, that are looked at
NOT_REPEATED = "the step could not be repeated in place"
NOT_COMPILED = (
    f"{NOT_REPEATED}: what was compiled is recorded in eager mode, which did not show it; "
    "`whynan run` on the program compares the two"
)


class Silent:
    """Told of harm in a traced block, whose end everybody waits for; `stops` leaves at the first."""

    def __init__(self, *, stops: bool = False) -> None:
        self._stops = stops

    def found(self, evidence: Evidence, how: How) -> None:
        if self._stops:
            raise StopRun

    def unexplained(self, sign: Sign) -> None:
        """Nothing is known but that: a traced block has seen everything."""

    def stepped(self, step: int) -> None: ...

    def failed(self, error: BaseException) -> None:
        """The notes of the recording tell."""


def traced(*, stops: bool = False) -> Watch:
    """Everything is recorded, from the start to the end of a block."""
    need_torch()
    from whynan.watching.plan import Plan
    from whynan.watching.watch import Watch

    return Watch(Plan(live_steps=sys.maxsize, always_live=True), Silent(stops=stops))


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
    block, result, error = traced(), Trace(), None
    caller = sys._getframe(2)  # of `__enter__`, which is of this generator
    before = {name: id(value) for name, value in caller.f_locals.items()}
    block.start(optimizers=_optimizers_so_far())
    try:
        yield result
        block.left_behind(caller.f_locals)
        new = [v for name, v in caller.f_locals.items() if id(v) != before.get(name)]
        block.ledger.asked_about(numbers=any(map(_is_bad, new)))
        del new
    except BaseException as raised:
        error = raised
        raise
    finally:
        del caller
        block.stop(error)
        result._recording = _in_eager_mode(block.recording())


def _in_eager_mode(recording: Recording) -> Recording:
    """A block is not run a second time: what the compiled program has is not known."""
    if EAGERLY not in recording.notes:
        return recording
    evidence = tuple(replace(e, as_compiled="unseen") for e in recording.evidence)
    return replace(recording, evidence=evidence)


def _is_bad(value: Any, depth: int = 3) -> bool:
    """Whether a plain number, its text, an array or a collection of them is not finite."""
    if isinstance(value, str):
        return SHOWS_NONFINITE.search(value) is not None
    if isinstance(value, (float, complex)):
        return value - value != 0
    if type(value) in (list, tuple, dict):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and any(_is_bad(item, depth - 1) for item in islice(items, MAX_ITEMS))
    if getattr(getattr(value, "dtype", None), "kind", "") in (
        "f",
        "c",
    ):  # NumPy's; torch's has none
        return bool(((value != value) | (abs(value) == math.inf)).any())
    return False


class Watching:
    """A `with whynan.watch(...)` block: what was found in it, and which steps were skipped."""

    def __init__(self) -> None:
        self.diagnosis: Diagnosis | None = None
        self.skipped: list[int] = []


class _Block:
    """Concludes what a watched block is told, as its policy asks."""

    def __init__(
        self, policy: Policy, capsule: Path | None, tell: Callable[[Diagnosis], None] | None
    ) -> None:
        from whynan.repair.first import FirstChanges
        from whynan.watching.plan import LIVE_STEPS, Plan
        from whynan.watching.watch import Watch

        self.result = Watching()
        self.watch = Watch(Plan(policy=policy, live_steps=LIVE_STEPS), self)
        self.board: LiveBoard | None = None
        self._changes = FirstChanges()
        self._policy, self._capsule, self._tell = policy, capsule, tell

    def found(self, evidence: Evidence, how: How) -> None:
        self._conclude(self._recorded(evidence), how)

    def unexplained(self, sign: Sign) -> None:
        from whynan.watching.signs import unseen

        recorded = self._recorded(unseen(sign, NOT_REPEATED))
        why = NOT_COMPILED if EAGERLY in recorded.notes else NOT_REPEATED
        self._conclude(replace(recorded, evidence=(unseen(sign, why),)), "no")

    def _recorded(self, newest: Evidence) -> Recording:
        try:
            return self.watch.recording()
        except Exception as error:
            self.failed(error)
            return Recording(evidence=(newest,))

    def stepped(self, step: int) -> None:
        if self.board is not None:
            self.board.step(step)

    def failed(self, error: BaseException) -> None:
        voice.say(f"stepped aside after an error of its own: {error!r}")

    def _conclude(self, recording: Recording, how: str) -> None:
        first = self.result.diagnosis is None
        recording = self._changes.beside(recording)
        found = replace(diagnose(recording), mode="auto", reproduced=how)
        self.result.diagnosis = found
        if self.board is not None:
            self.board.report(found)
        if first and self._capsule is not None:
            fill_capsule(self._capsule, self.watch, sys.argv, lambda: recording.of(found))
        if self._policy == "stop":
            raise StopRun
        self._hand_over(replace(found, anomalies=found.anomalies[-1:]))

    def _hand_over(self, newest: Diagnosis) -> None:
        if self._tell is not None:
            try:
                self._tell(newest)
                return
            except Exception as error:  # a full disk behind it
                voice.say(f"the report could not be handed on: {error!r}")
        voice.report(str(newest))


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
    need_torch()
    if on_anomaly not in ("stop", "skip", "warn"):
        raise UsageError(f"on_anomaly is {on_anomaly!r}; it can be stop, skip or warn")
    models, known = _listed(model), _listed(optimizer)
    _check_arguments(models, known, writer)
    block = _Block(on_anomaly, None if capsule is None else Path(capsule), tell)
    if writer is not None:
        from whynan.report.live_board import LiveBoard
        from whynan.watching.layers import LayersOf

        board = LayersOf(block.watch, models)
        block.board = LiveBoard(writer, board.spreads, board.rows)
    if not known and model is not None:
        from whynan.watching.optimizers import optimizers_of

        known = optimizers_of(models)
    elif not known:
        known = _optimizers_so_far()
    block.watch.start(models, known)
    error: BaseException | None = None
    try:
        yield block.result
    except BaseException as raised:
        error = raised
    try:
        block.watch.stop(error)
    except StopRun as stopped:
        error = error or stopped
    except Exception as own:
        block.failed(own)
    if block.board is not None:
        block.board.flush()
    block.result.skipped = list(block.watch.told.skipped)
    # A bare `except:` in the loop may have kept the request to stop from coming here.
    is_over = isinstance(error, StopRun) or (error is None and on_anomaly == "stop")
    if is_over and block.result.diagnosis is not None:
        raise AnomalyFound(block.result.diagnosis) from None
    if error is not None:
        raise error


def _optimizers_so_far() -> list[Any]:
    """Those that exist; not while other threads may be making one."""
    from whynan.watching.optimizers import optimizers_so_far

    return optimizers_so_far() if is_alone() else []


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check_arguments(models: list[Any], optimizers: list[Any], writer: Any) -> None:
    """What was given, and what is to be typed instead."""
    for model in models:
        if hasattr(model, "param_groups"):
            name = type(model).__name__
            raise UsageError(
                f"{name} is an optimizer: whynan.watch(model, optimizer) takes it second"
            )
        if not callable(model):
            raise UsageError(f"whynan.watch takes a model first, not {_told(model)}")
    for optimizer in optimizers:
        if not callable(getattr(optimizer, "step", None)):
            raise UsageError(f"whynan.watch takes an optimizer second, not {_told(optimizer)}")
    if writer is not None and not hasattr(writer, "add_scalar"):
        raise UsageError(
            f"writer is {_told(writer)}; it takes a SummaryWriter: writer=SummaryWriter('runs/1')"
        )


def _told(value: Any) -> str:
    """A value that does not belong there: a short one itself, else what it is."""
    plain = value is None or isinstance(value, (str, int, float))
    return repr(value)[:60] if plain else f"a {type(value).__name__}"


def diagnose_trace(recording: Trace | Recording) -> Diagnosis:
    """Name the origin of every harm that a traced block held."""
    if not isinstance(recording, (Trace, Recording)):
        raise UsageError(
            f"whynan.diagnose takes what `with whynan.trace() as recording` gave, not {_told(recording)}"
        )
    if isinstance(recording, Recording):
        return diagnose(recording)
    from whynan.repair.first import FirstChanges

    return diagnose(FirstChanges().beside(recording.recording))
