"""Differences as text, and writing them: atomically, and never over somebody's later edit."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from whynan.errors import UsageError


def read(paths: Iterable[str]) -> dict[str, str]:
    """The files as they are now, line endings included."""
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8", newline="") as stream:
            texts[path] = stream.read()
    return texts


def unified(originals: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """One unified diff of all changed files, with paths as `git apply` and `patch -p1` want them."""
    parts = []
    for path, text in texts.items():
        name = os.path.relpath(path)
        lines = difflib.unified_diff(
            originals[path].splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        for line in lines:
            parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def apply(originals: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Write the changed files, or none of them if one is not what it was when it was run."""
    now = read(texts)
    changed = [os.path.relpath(p) for p in texts if now[p] != originals[p]]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} changed since it was run; nothing was written. Run whynan fix again."
        )
    staged = [(path, _staged(path, text)) for path, text in texts.items()]
    for path, temporary in staged:
        os.replace(temporary, os.path.realpath(path))
    return [os.path.relpath(path) for path in texts]


def _staged(path: str, text: str) -> str:
    target = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)
    os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
    return temporary
