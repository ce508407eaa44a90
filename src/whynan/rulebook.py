"""A folder of rules: each file is one, and its documentation is its page."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a file in a folder of rules is known by, and what it says about itself."""

    code: str
    slug: str
    module: str

    @property
    def text(self) -> str:
        return importlib.import_module(self.module).__doc__ or ""

    @property
    def title(self) -> str:
        return self.text.strip().splitlines()[0].rstrip(".")


def import_all(package: str) -> None:
    """Rules enter their table when their file is imported: they are found, not listed."""
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{info.name}")
