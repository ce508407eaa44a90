"""One watch inside another, as a block of the program's own under `whynan run`: the inner one looks.

Both would hear each step, and what one takes back the other takes for the program's doing.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

# With the process and the thread in which they began.
_looking: weakref.WeakKeyDictionary[Watch, tuple[int, int]] = weakref.WeakKeyDictionary()


def begin(watch: Watch) -> list[Watch]:
    """Those around it in this thread, which wait now."""
    here = os.getpid(), threading.get_ident()
    for other in [w for w, (process, _) in _looking.items() if process != here[0]]:
        other.abandon()  # a forked process has its parent's, which looks at nothing here
    outer = [w for w, place in _looking.items() if place == here and w.quiet.active]
    for other in outer:
        other.pause()
    _looking[watch] = here
    return outer


def end(watch: Watch, outer: list[Watch]) -> None:
    """They go on."""
    _looking.pop(watch, None)
    while outer:
        other = outer.pop()
        if other in _looking:  # not where it has ended meanwhile
            other.go_on()
