"""A word on the terminal while something takes long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from whynan import voice

LONG_S = 2.0


@contextmanager
def while_waiting(text: str, *, after_s: float = LONG_S) -> Iterator[None]:
    """Show `text` with a sign of life, if it takes longer than that; nothing where nobody looks."""
    if not voice.is_on_terminal():
        yield
        return
    shown: list[Any] = []
    lock = threading.Lock()
    over = False

    def show() -> None:
        from rich.console import Console

        with lock:
            if not over:
                shown.append(Console(stderr=True).status(text))
                shown[0].start()

    timer = threading.Timer(after_s, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
            if shown:
                shown[0].stop()
