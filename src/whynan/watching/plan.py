"""How a program is to be watched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Policy = Literal["stop", "skip", "warn"]
LIVE_STEPS = 5  # recorded as they happen: most scripts fail early, and it is cheap
LIVE_OPERATIONS = 1_500  # of a program that does not train: a few hundredths of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked for; `Progress` knows what of it is possible."""

    policy: Policy = "stop"
    traces: bool = True  # False: detect only
    live_steps: int = LIVE_STEPS
    live_operations: int = LIVE_OPERATIONS  # at least, where a program does not train
    armed_from: int | None = None  # the step that another run is known to fail at
    always_live: bool = False  # record everything, and never go quiet
    save_batch: Path | None = None  # where the first failing batch is kept
    finite_from: int | None = None  # a step from which on every loss must be finite
    keeps_operands: bool = False  # of what made the first bad value, to repeat it by itself
    compared: int | None = (
        None  # the step at which another run, in eager mode, came to something else
    )
    together: bool = False  # one of several ranks, which decide right after each has looked

    @property
    def stays_live(self) -> bool:
        """Whether a recording goes on, however long it takes."""
        return self.always_live or self.armed_from is not None
