"""`python -m cProfile -m whynan run ...`: what runs a program from the standard library swallows its code."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HARM = 3
SWALLOW = ("cProfile.py", "profile.py", "trace.py")
LIBRARY = os.path.dirname(os.__file__)


@contextmanager
def code_of_harm() -> Iterator[None]:
    """Harm ends the process with its own code there, too, after the profile is written."""
    if not _is_swallowed():
        yield
        return
    found: list[int] = []
    atexit.register(_leave, found)  # registered first: what the program registers comes before it
    try:
        yield
    except SystemExit as leaves:
        if leaves.code == HARM:
            found.append(HARM)
        raise


def _is_swallowed() -> bool:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        folder, name = os.path.split(frame.f_code.co_filename)
        if name in SWALLOW and folder == LIBRARY:
            return True
    return False


def _leave(found: list[int]) -> None:
    if found:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(found[0])
