"""Where a report goes: `--open` shows the page once it is written, `--output` is for services."""

from __future__ import annotations

import tempfile
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whynan import voice

if TYPE_CHECKING:
    from whynan.run.poured import Poured

ALONE = "; `-` for standard output, and what the script prints goes to standard error"

open_option: Callable[..., Any] = click.option(
    "--open",
    "is_opened",
    is_flag=True,
    help="Open the page in a browser; without --html it is written to a temporary folder.",
)


def poured_of(path: Path | None) -> tuple[Path | None, Poured | None]:
    """`-` stands for standard output, which the program must not write to then."""
    if str(path) != "-":
        return path, None
    from whynan.run.poured import Poured

    poured = Poured()
    return poured.path, poured


def output_of(style: str, path: Path | None) -> Path | None:
    """Where a report to a service goes: annotations are printed unless a file is named."""
    if style == "text":
        if path is not None:
            raise click.UsageError("--output needs --format github, sarif or junit")
        return None
    from whynan.report.remarks import ENDINGS

    return path or (Path(ENDINGS[style]) if style in ENDINGS else None)


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
