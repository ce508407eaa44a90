"""Differences as text, and writing them: atomically, and never over somebody's later edit."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from whynan.errors import UsageError
from whynan.repair.originals import Originals
from whynan.source.cells import cell_name


def unified(originals: Originals, texts: Mapping[str, str]) -> str:
    """One unified diff of all changed files, with paths as `git apply` and `patch -p1` want them."""
    parts = []
    for path, text in texts.items():
        encoding = originals.encoding(path).removesuffix("-sig")  # the mark belongs to a first line
        parts.append(_difference(originals, path, text).decode(encoding))
    return "".join(parts)


def unified_bytes(originals: Originals, texts: Mapping[str, str]) -> bytes:
    """The same, each file in its own encoding: what `patch` compares with."""
    return b"".join(_difference(originals, path, text) for path, text in texts.items())


def _difference(originals: Originals, path: str, text: str) -> bytes:
    shown = cell_name(path) or cell_name(os.path.basename(path)) or os.path.relpath(path)
    name = os.fsencode(shown)
    before, after = originals.raw(path) or b"", originals.encoded(path, text)
    parts = []
    for line in difflib.diff_bytes(
        difflib.unified_diff, _lines(before), _lines(after), b"a/" + name, b"b/" + name
    ):
        parts.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    return b"".join(parts)


def _lines(raw: bytes) -> list[bytes]:
    """As `patch` counts them: a form feed or a lone carriage return ends none."""
    return re.findall(rb"[^\n]*\n|[^\n]+", raw)


def apply(originals: Originals, texts: Mapping[str, str]) -> list[str]:
    """Write the changed files, or none of them if one is not what it was when it was run."""
    changed = [os.path.relpath(p) for p in texts if not originals.is_as_it_was(p)]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} changed since it was run; nothing was written. Run whynan fix again."
        )
    protected = [os.path.relpath(p) for p in texts if _is_protected(p)]
    if protected:
        raise UsageError(f"{', '.join(protected)} is read-only; nothing was written")
    staged = [(path, _staged(path, originals.encoded(path, text))) for path, text in texts.items()]
    for path, temporary in staged:
        os.replace(temporary, os.path.realpath(path))
    return [os.path.relpath(path) for path in texts]


def _is_protected(path: str) -> bool:
    """By its mode, which says what the owner wants even where the administrator may do anything."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return not mode & 0o222 or not os.access(path, os.W_OK)


def _staged(path: str, content: bytes) -> str:
    target = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
    return temporary
