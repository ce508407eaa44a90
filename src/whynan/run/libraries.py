"""whynan's own libraries, also where the program's folder has modules of the same names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

LIBRARIES = ("click", "rich", "jinja2", "markupsafe", "libcst", "pygments", "safetensors")


class Libraries:
    """A `rich.py` beside the script is the program's `rich`, and stays so; a report is drawn with
    the other one."""

    def __init__(self, folder: str) -> None:
        places = [(name, os.path.join(folder, name)) for name in LIBRARIES]
        self._taken = {n for n, at in places if os.path.isdir(at) or os.path.exists(f"{at}.py")}
        self._folder = folder
        self._ours: dict[str, ModuleType] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """For as long as whynan draws or writes."""
        if not self._taken:
            yield
            return
        theirs, path = self._loaded(), list(sys.path)
        self._swap(self._ours)
        sys.path[:] = [p for p in path if p != self._folder]
        try:
            yield
        finally:
            self._ours = self._loaded()
            self._swap(theirs)
            sys.path[:] = path

    def _loaded(self) -> dict[str, ModuleType]:
        return {n: m for n, m in sys.modules.items() if n.split(".")[0] in self._taken}

    def _swap(self, modules: dict[str, ModuleType]) -> None:
        for name in self._loaded():
            del sys.modules[name]
        sys.modules.update(modules)
