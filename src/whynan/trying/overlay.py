"""What makes a process one of a trial: changed sources laid over the files, an experiment begun.

The user's files stay as they are: importing and running a changed file reads its new text instead.
"""

from __future__ import annotations

import atexit
import builtins
import io
import linecache
import os
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from multiprocessing import spawn
from pathlib import Path
from types import CodeType
from typing import Any

from whynan.repair.originals import encoded


def begin(description: dict[str, Any]) -> Callable[[], None]:
    """In this process and in those that it forks or spawns. The result writes down that the experiment
    had something to change."""
    lay_over(description["texts"])
    applied = _intervene(description["intervention"])
    if description["drop"]:
        from whynan.trying.leaving_out import leave_out

        leave_out(**description["drop"])
    original: Any = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        # It is read before the program's own file is, and what else is in it nobody asks for.
        return {**original(name), "whynan": _Began(description)}

    spawn.get_preparation_data = get_preparation_data

    def tell() -> None:
        if times := applied():  # a launcher has nothing to change, its ranks have
            Path(description["applied"]).write_text(str(times), encoding="utf-8")

    return tell


def begin_spawned(description: dict[str, Any]) -> None:
    atexit.register(begin(description))


class _Began:
    """Begins where it is read."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description

    def __reduce__(self) -> tuple[Callable[..., None], tuple[dict[str, Any]]]:
        return begin_spawned, (self._description,)


def _intervene(name: str | None) -> Callable[[], int | None]:
    """Start the experiment; the result tells how often it had something to change."""
    if name is None:
        return lambda: None
    from whynan.trying.interventions import Intervention

    intervention = Intervention()
    intervention.start(name)
    return lambda: intervention.applied


def lay_over(texts: Mapping[str, str]) -> None:
    """From now on these files have these texts, for the script, for imports and for reports."""
    if not texts:
        return
    sources = {os.path.realpath(path): text for path, text in texts.items()}
    loaders: Any = SourceFileLoader
    original_open, original_code = io.open_code, SourceFileLoader.get_code

    def open_code(path: str) -> Any:
        text = sources.get(os.path.realpath(path))
        if text is None:
            return original_open(path)
        _quote(os.path.abspath(path), text)  # the name that a script's code has
        return io.BytesIO(encoded(text))

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        text = sources.get(os.path.realpath(path))
        if text is None:
            return original_code(loader, fullname)
        _quote(path, text)
        code: CodeType = loader.source_to_code(encoded(text), path)  # past the bytecode cache
        return code

    io.open_code = open_code
    loaders.get_code = get_code
    if not all(path.endswith(".py") for path in sources):
        _lay_over_settings(sources)


def _lay_over_settings(sources: Mapping[str, str]) -> None:
    """What is no Python is read by the program itself."""
    original = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        named = isinstance(file, (str, bytes, os.PathLike))
        text = sources.get(os.path.realpath(os.fsdecode(file))) if named and "r" in mode else None
        if text is None:
            return original(file, mode, *args, **kwargs)
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

    io.open = builtins.open = opened


def _quote(path: str, text: str) -> None:
    # An entry without a modification time is never looked up on disk again.
    linecache.cache[path] = (len(text), None, list(io.StringIO(text, newline=None)), path)
