"""The user's files as they were before the program was run, each in its own encoding."""

from __future__ import annotations

import io
import os
import time
import tokenize
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whynan.repair.source import Source

MAX_FILES = 300  # a larger tree is not read
MAX_FOLDERS = 2000
ASIDE = frozenset({"site-packages", "__pycache__", "node_modules", "venv", "env", "build", "dist"})


class Originals:
    """Read before the first run: an edit made while changes are tried is noticed, and kept."""

    def __init__(self, root: str = "", script: str = "", most: int | None = None) -> None:
        self.parsed: dict[tuple[str, str], Source | None] = {}  # by path and text
        self.cells: set[str] = set()
        self._left = most  # characters that may still be parsed: a report is waited for
        self._since_ns = time.time_ns()
        self._raw: dict[str, bytes | None] = {}
        for path in (script, *islice(python_files(root), MAX_FILES)) if root else ():
            self.raw(path)
        self._before_the_run = frozenset(self._raw)

    def raw(self, path: str) -> bytes | None:
        """The bytes of the file; of one beyond the limits, as they are when it is first asked for."""
        path = os.path.realpath(path)
        if path not in self._raw:
            self._raw[path] = _read(path)
        return self._raw[path]

    def know(self, path: str, text: str) -> None:
        """A notebook's cell, which is in no file."""
        path = os.path.realpath(path)
        self._raw[path] = text.encode()
        self.cells.add(path)

    def may_parse(self, text: str) -> bool:
        if self._left is not None:
            self._left -= len(text)
        return self._left is None or self._left >= 0

    def text(self, path: str) -> str | None:
        """As Python reads it, line endings kept; None if it cannot be read."""
        raw = self.raw(path)
        if raw is None:
            return None
        try:
            return raw.decode(_encoding(raw))
        except (SyntaxError, UnicodeDecodeError, LookupError):
            return None

    def encoding(self, path: str) -> str:
        """`utf-8-sig` where the file begins with a byte order mark."""
        return _encoding(self.raw(path) or b"")

    def encoded(self, path: str, text: str) -> bytes:
        """A changed text as the file's own bytes."""
        return text.encode(self.encoding(path))

    def is_as_it_was(self, path: str) -> bool:
        """Whether the file is still what was run."""
        raw, path = self.raw(path), os.path.realpath(path)
        if raw is None or _read(path) != raw:
            return False
        return path in self._before_the_run or os.stat(path).st_mtime_ns < self._since_ns


def encoded(text: str) -> bytes:
    """In the encoding that the text itself declares."""
    return text.encode(_encoding(text.encode()))


def python_files(root: str) -> Iterator[str]:
    return files_below(root, (".py",))


def files_below(root: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Below a folder, without what is installed or hidden."""
    walk = os.walk(os.path.realpath(root))
    for folder, inner, files in islice(walk, MAX_FOLDERS):
        inner[:] = sorted(d for d in inner if d not in ASIDE and not d.startswith("."))
        yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(endings))


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def _encoding(raw: bytes) -> str:
    """By PEP 263: a byte order mark, a comment in the first two lines, or UTF-8."""
    return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
