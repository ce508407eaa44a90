"""The time for trying: what the trials worked, not what they waited for a busy machine."""

from __future__ import annotations

import time

from whynan.trying.trial import Ran

WAITS = 3.0  # times the allowance, at most: what waits for something else comes to an end, too


class Allowance:
    """So many seconds of work: of processors, or by the clock where that is less."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._worked, self._took = 0.0, 0.0
        self._end = time.monotonic() + WAITS * seconds

    def spend(self, ran: Ran) -> None:
        """Several threads work more than the clock says; beside other programs, less."""
        worked = ran.seconds if ran.cpu_s is None else min(ran.seconds, ran.cpu_s)
        self._worked += worked
        self._took += ran.seconds

    @property
    def left(self) -> float:
        """Seconds by the clock that a trial may take, at the pace of those before it."""
        pace = max(1.0, self._took / self._worked) if self._worked else 1.0
        return min((self.seconds - self._worked) * pace, self._end - time.monotonic())
