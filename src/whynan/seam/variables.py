"""A frame's variables, read without leaving anything behind.

Before Python 3.13 a function's frame keeps the dictionary that it was asked for, as long as it lives: whatever
its names had then would stay in memory, after the program has let it go.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

ALONE = 3  # references: the frame's, ours, and that of the question


def locals_of(frame: FrameType, names: Iterable[str] | None = None) -> dict[str, Any]:
    """All, or those of these names that have a value."""
    held, code = frame.f_locals, frame.f_code
    found = {**held} if names is None else {n: held[n] for n in names if n in held}
    # A debugger writes what is in it back; the program may hold it by `locals()`, or have added to it.
    if (
        type(held) is dict
        and code.co_flags & CO_OPTIMIZED
        and sys.getrefcount(held) == ALONE
        and sys.gettrace() is None
    ):
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            held.pop(name, None)
    return found
