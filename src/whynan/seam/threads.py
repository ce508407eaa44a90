"""Whether other threads are in the middle of something."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import thread
from types import FrameType

_WAIT = threading.Condition.wait.__code__
# Of a pool: while it has work, another frame is inside.
_WORKER = getattr(getattr(thread, "_worker", None), "__code__", _WAIT)


_JOIN = getattr(threading.Thread, "_wait_for_tstate_lock", threading.Thread.join).__code__


def others_wait() -> bool:
    """All other threads stand still: for a lock, for work, or for a thread to end."""
    frames, me = sys._current_frames(), threading.get_ident()
    others = [frames.get(t.ident or 0) for t in threading.enumerate() if t.ident != me]
    return all(f is not None and f.f_code in (_WAIT, _WORKER, _JOIN) for f in others)


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
