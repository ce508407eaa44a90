"""Whether other threads are in the middle of something."""

from __future__ import annotations

import sys
import threading
from types import FrameType

_WAIT = threading.Condition.wait.__code__


def is_alone() -> bool:
    """No other thread is making anything. One that only waits in its loop, as that of a progress bar
    or a heartbeat, is not."""
    if threading.active_count() == 1:
        return True
    frames, me = sys._current_frames(), threading.get_ident()
    others = [thread.ident for thread in threading.enumerate() if thread.ident != me]
    return all(_only_waits(frames.get(ident or 0)) for ident in others)


def _only_waits(frame: FrameType | None) -> bool:
    """Its own function calls `wait`, and is called by Python itself: in between nothing is half made,
    as it may be in `tuple(map(f, ...))`."""
    if frame is None or frame.f_code is not _WAIT:
        return False
    between = 0
    while frame is not None:
        between += frame.f_code.co_filename != _WAIT.co_filename
        frame = frame.f_back
    return between <= 1
