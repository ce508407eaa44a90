"""Whether other threads are in the middle of something."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import thread
from types import FrameType

_WAIT = threading.Condition.wait.__code__
# Of a pool: while it has work, another frame is inside.
_WORKER = getattr(getattr(thread, "_worker", None), "__code__", _WAIT)


def is_alone() -> bool:
    """No other thread is making anything. One that only waits in its loop, as that of a progress bar,
    a heartbeat or an idle pool, is not."""
    if threading.active_count() == 1:
        return True
    frames, me = sys._current_frames(), threading.get_ident()
    others = [other.ident for other in threading.enumerate() if other.ident != me]
    return all(_only_waits(frames.get(ident or 0)) for ident in others)


def _only_waits(frame: FrameType | None) -> bool:
    """Its own function calls `wait`, and is called by Python itself: in between nothing is half made,
    as it may be in `tuple(map(f, ...))`."""
    if frame is not None and frame.f_code is _WORKER:
        return True
    if frame is None or frame.f_code is not _WAIT:
        return False
    between = 0
    while frame is not None:
        between += frame.f_code.co_filename != _WAIT.co_filename
        frame = frame.f_back
    return between <= 1
