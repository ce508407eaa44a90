"""What was found in a file before, by its content: nothing is read twice that has not changed.

One small JSON file for each content, below the user's cache folder and never in the tree that is read.
A file is put in place at once, so that runs beside each other do no harm; what cannot be read or
written is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whynan.lint.finding import Finding, Replacement
from whynan.version import __version__

KEPT_DAYS = 30
DAY = 86400


def folder() -> str:
    """Where it lies; '' where the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "whynan", "lint") if os.path.isabs(base) else ""


def fingerprint() -> str:
    """Another one as soon as the rules, or what they ask, are others."""
    package = Path(__file__).parents[1]
    parts = [__version__]
    for room in ("lint", "lint/rules", "ops", "source"):
        for entry in sorted(os.scandir(package / room), key=lambda e: e.name):
            if entry.name.endswith(".py"):
                stat = entry.stat()
                parts.append(f"{entry.name} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(parts)


class Cache:
    """The findings of files, for one choice of patterns."""

    def __init__(self, root: str, choice: Iterable[str]) -> None:
        self._root = root
        self._own = "\n".join((fingerprint(), *choice)).encode()

    def place(self, path: str, raw: bytes, *about: str) -> str:
        """Where the findings of a content lie. Of the path, the file and its folder matter to rules."""
        near = "/".join(path.replace("\\", "/").split("/")[-2:])
        digest = hashlib.blake2b(self._own, digest_size=20)
        for part in (near, *about):
            digest.update(f"\0{part}".encode(errors="surrogateescape"))
        digest.update(b"\0" + raw)
        name = digest.hexdigest()
        return os.path.join(self._root, name[:2], f"{name[2:]}.json")

    def get(self, place: str, path: str) -> tuple[Finding, ...] | None:
        try:
            with open(place, "rb") as file:
                return tuple(_finding(entry, path) for entry in json.loads(file.read()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def put(self, place: str, findings: Iterable[Finding]) -> None:
        text = json.dumps([{**asdict(f), "path": ""} for f in findings])
        temporary = f"{place}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, place)
        except (OSError, ValueError):
            return


def _finding(entry: dict[str, Any], path: str) -> Finding:
    change = entry.pop("replacement")
    if change is not None:
        places: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in change.items()}  # fmt: skip
        change = Replacement(**places)
    return Finding(**{**entry, "path": path, "replacement": change})


def prune(root: str) -> None:
    """Once a day, forget what nobody has asked for in a month."""
    mark = os.path.join(root, "pruned")
    now = time.time()
    try:
        if os.path.exists(mark) and now - os.stat(mark).st_mtime < DAY:
            return
        if not os.path.isdir(root):
            return
        Path(mark).touch()
        for where, _, files in os.walk(root):
            for name in files:
                file = os.path.join(where, name)
                if name != "pruned" and now - os.stat(file).st_mtime > KEPT_DAYS * DAY:
                    os.unlink(file)
    except OSError:
        return
