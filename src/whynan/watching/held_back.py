"""What the program prints while a step is repeated was printed before: it waits until that is known."""

from __future__ import annotations

import sys
import threading
from typing import Any


class _Waiting:
    """Standard output, but for what the thread that repeats the step writes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.texts: list[str] | None = []
        self._thread = threading.get_ident()

    def write(self, text: str) -> Any:
        if self.texts is None or threading.get_ident() != self._thread:
            return self.stream.write(text)  # somebody has kept it, or says it for the first time
        self.texts.append(text)
        return len(text)

    def writelines(self, texts: Any) -> None:
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        if self.texts is None:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class HeldBack:
    """Standard output, as Python writes it, between `begin` and `end`."""

    def __init__(self) -> None:
        self._waiting: _Waiting | None = None

    def begin(self) -> None:
        if self._waiting is None and sys.stdout is not None:
            sys.stdout = self._waiting = _Waiting(sys.stdout)

    def end(self, *, shown: bool) -> None:
        """`shown`: it was not the same step, so that all of it is the program's first word."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        if sys.stdout is waiting:
            sys.stdout = waiting.stream
        texts, waiting.texts = waiting.texts or [], None
        if shown and texts:
            waiting.stream.write("".join(texts))
