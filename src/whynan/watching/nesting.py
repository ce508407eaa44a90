"""One watch inside another, as a block of the program's own under `whynan run`: the inner one looks.

Both would hear each step, and what one takes back the other takes for the program's doing.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.watching.watch import Watch

_looking: weakref.WeakKeyDictionary[Watch, int] = weakref.WeakKeyDictionary()  # and their threads


def begin(watch: Watch) -> list[Watch]:
    """Those around it in this thread, which wait now."""
    here = threading.get_ident()
    outer = [w for w, thread in _looking.items() if thread == here and w.quiet.active]
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
