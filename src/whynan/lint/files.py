"""Finds, reads and writes the files to check; encoding and line ends stay as they are."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from whynan.errors import UsageError
from whynan.lint.selection import Config, matches

SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "build", "dist", "site-packages"})


def find(paths: Iterable[str], config: Config) -> list[str]:
    """Every file to check: named files as they are, folders searched."""
    found: dict[str, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for file in _search(given, config):
                found[file] = None
        elif path.exists():
            found[given] = None
        else:
            raise UsageError(f"no such file or folder: {given}")
    return list(found)


def _search(folder: str, config: Config) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED
            and not name.startswith(".")
            and not _excluded(os.path.join(where, name), config)
        )
        for name in sorted(files):
            path = os.path.join(where, name)
            if name.endswith((".py", ".ipynb")) and not _excluded(path, config):
                yield os.path.normpath(path)


def _excluded(path: str, config: Config) -> bool:
    return any(matches(path, glob, config.root) for glob in config.exclude)


def decode(raw: bytes) -> tuple[str, str]:
    """A file's text with its own line ends, and its encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return raw.decode(encoding), encoding


def write(path: str, text: str, encoding: str) -> None:
    """Replace a file at once, or not at all."""
    import tempfile  # slow to import, and most runs write nothing

    target = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".whynan-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode(encoding))
        os.chmod(temporary, os.stat(target).st_mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
