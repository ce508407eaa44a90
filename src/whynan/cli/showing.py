"""`--open`: the page is shown in the browser once it is written."""

from __future__ import annotations

import tempfile
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from whynan import voice

open_option: Callable[..., Any] = click.option(
    "--open",
    "is_opened",
    is_flag=True,
    help="Open the page in a browser; without --html it is written to a temporary folder.",
)


class Page:
    """Where the page goes, and whether it was written since."""

    def __init__(self, path: Path | None, is_opened: bool) -> None:
        self._is_opened = is_opened
        if path is None and is_opened:
            path = Path(tempfile.mkdtemp(prefix="whynan-")) / "report.html"
        self._typed = path
        self.path = path.absolute() if path is not None else None
        self._since = time.time()

    def show(self) -> None:
        """Say where it is, and open it if asked to."""
        if self.path is None or not self._is_new(self.path):
            return
        voice.say(f"wrote {self._typed}")
        try:
            if self._is_opened and not webbrowser.open(self.path.as_uri()):
                voice.say("no browser could be opened")
        except Exception as error:
            voice.say(f"no browser could be opened: {error}")

    def _is_new(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_mtime >= self._since - 1
