"""When, how long, where and on what a program ran: what a colleague who reads the report would ask first."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable


class Circumstances:
    """Taken down when the run begins, told when it ends."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._clock: Callable[[], float] = time.monotonic  # the program may replace it
        self._begin_s = self._clock()
        self._started = time.strftime("%Y-%m-%d %H:%M")

    def told(self) -> dict[str, str]:
        """In words, by what they are."""
        found = {
            "command": self._command,
            "started": self._started,
            "took": duration(self._clock() - self._begin_s),
            "host": platform.node(),
            "devices": _devices(),
        }
        return {name: text for name, text in found.items() if text}


def duration(seconds: float) -> str:
    """In two units at most.

    >>> duration(0.4), duration(75), duration(7_500), duration(200_000)
    ('0.4 s', '1 min 15 s', '2 h 5 min', '2 d 7 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        n, left = divmod(left, size)
        if n or parts:
            parts.append(f"{n} {unit}" if n else "")
    return " ".join(part for part in parts[:2] if part)


def _devices() -> str:
    if "torch" not in sys.modules:
        return ""
    try:
        from whynan.seam.devices import names

        return ", ".join(names())
    except Exception:  # a name is not worth a report
        return ""
