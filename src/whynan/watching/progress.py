"""How far the training has come, and whether its next step is recorded as it happens."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from whynan.record.recorder import Recorder
from whynan.seam.optimizers import Optimizer
from whynan.seam.profiling import is_profiled
from whynan.seam.threads import others_wait
from whynan.watching.plan import Plan

MAX_SUSPECTS = 8  # steps that are recorded because of something odd in the one before
SKIPS_IN_A_ROW = 8
COLLAPSED_SCALE = 256.0  # eight halvings of torch's own starting scale


class Scaling:
    """What GradScaler does: a skipped step is normal, a scale that collapses is harm."""

    def __init__(self) -> None:
        self.in_use = False
        self.skips = 0
        self.scale: float | None = None

    def stepped(self, scaler: Any, taken: bool) -> bool:
        """Whether the scale has collapsed."""
        self.skips = 0 if taken else self.skips + 1
        if self.scale is None or self.skips:
            self.scale = float(scaler.get_scale())
        return self.skips >= SKIPS_IN_A_ROW and self.scale <= COLLAPSED_SCALE


class Progress:
    """`step` is the number of the one that is being made."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.step = 0
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.stepping: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # those that have
        self.uses_optimizer = False
        self.scaling = Scaling()
        self.threads: set[int] = set()  # that have stepped
        self.traces = plan.traces  # until the recorder fails
        self.has_rested = False  # since then, values exist that nobody saw made
        self._plan = plan
        self._recorder = recorder
        self._suspects: set[int] = set()

    def is_in_main_thread_alone(self) -> bool:
        """Here and now, and in every step so far."""
        me = threading.get_ident()
        return me == threading.main_thread().ident and self.threads <= {me}

    def is_in_a_thread_alone(self) -> bool:
        """Or in another thread that has made every step, while nothing moves in the others."""
        mine = self.threads <= {threading.get_ident()}
        return self.is_in_main_thread_alone() or (mine and others_wait())

    @property
    def waits(self) -> bool:
        """For the step that another run is known to fail at; until then nobody looks."""
        return self.traces and self._plan.armed_from is not None

    @property
    def may_go_live(self) -> bool:
        """Whether something odd is reason enough to record from here on."""
        undisturbed = not self._recorder.has_compiled and not is_profiled()
        return self.traces and not self.waits and undisturbed

    def suspect(self) -> None:
        """Something odd, which only a recording can judge: record the next step."""
        if len(self._suspects) < MAX_SUSPECTS:
            self._suspects.add(self.step + 1)

    def is_live(self) -> bool:
        """Whether this step is to be recorded as it happens."""
        plan, step = self._plan, self.step
        if not self.traces:
            return False
        if plan.armed_from is not None and step >= plan.armed_from:
            return True
        if (self._recorder.has_compiled or is_profiled()) and not plan.always_live:
            return False  # recording would run it eagerly, or show in the profile
        if step in self._suspects:
            return True
        return step < plan.live_steps or (plan.live_steps > 0 and _is_power_of_ten(step))


def _is_power_of_ten(step: int) -> bool:
    while step > 1 and step % 10 == 0:
        step //= 10
    return step == 1
