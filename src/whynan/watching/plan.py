"""How a program is to be watched, and which of its steps are recorded as they happen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from whynan.record.recorder import Recorder

Policy = Literal["stop", "skip", "warn"]
LIVE_STEPS = 5  # recorded as they happen: most scripts fail early, and it is cheap
MAX_SUSPECTS = 8  # steps that are recorded because of something odd in the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to watch."""

    policy: Policy = "stop"
    traces: bool = True  # False: detect only
    live_steps: int = LIVE_STEPS
    armed_from: int | None = None  # the step that another run is known to fail at
    always_live: bool = False  # record everything, and never go quiet
    save_batch: Path | None = None  # where the first failing batch is kept
    together: bool = False  # one of several ranks, which decide right after each has looked

    @property
    def stays_live(self) -> bool:
        """Whether a recording goes on, however long it takes."""
        return self.always_live or self.armed_from is not None


class Choice:
    """What is recorded: the plan, as far as the program and the recorder allow it."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.traces = plan.traces  # until the recorder fails
        self.has_rested = False  # since then, values exist that nobody saw made
        self._plan = plan
        self._recorder = recorder
        self._suspects: set[int] = set()

    @property
    def waits(self) -> bool:
        """For the step that another run is known to fail at; until then nobody looks."""
        return self.traces and self._plan.armed_from is not None

    @property
    def may_begin(self) -> bool:
        """Whether something odd is reason enough to record from here on."""
        armed = self._plan.armed_from is not None
        return self.traces and not armed and not self._recorder.has_compiled

    def suspect(self, step: int) -> None:
        """Something odd before it, which only a recording can judge."""
        if len(self._suspects) < MAX_SUSPECTS:
            self._suspects.add(step)

    def is_live(self, step: int) -> bool:
        """Whether this step is to be recorded as it happens."""
        plan = self._plan
        if not self.traces:
            return False
        if plan.armed_from is not None and step >= plan.armed_from:
            return True
        if self._recorder.has_compiled and not plan.always_live:
            return False  # recording would run it eagerly: other results
        if step in self._suspects:
            return True
        return step < plan.live_steps or (plan.live_steps > 0 and _is_power_of_ten(step))


def _is_power_of_ten(step: int) -> bool:
    while step > 1 and step % 10 == 0:
        step //= 10
    return step == 1
