"""A real browser: the system's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.builders import save_case
from tests.conftest import find_chromium
from tests.harness import ForkServer
from whynan.report import html
from whynan.run.reopen import reopen

CHROMIUM = find_chromium()
collect_ignore_glob = [] if CHROMIUM else ["test_*.py"]  # said at the end of the run


@pytest.fixture(scope="module")  # its thread and its event loop must not outlive its tests
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Containers and root have no sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Pages:
    """The page of each failing program, made once."""

    def __init__(self, programs: ForkServer, folder: Path) -> None:
        self._programs = programs
        self._folder = folder

    def of(self, case: str) -> Path:
        page = self._folder / f"{case}.html"
        if not page.exists():
            recording = save_case(self._programs, case, self._folder / case)
            html.write(reopen(recording), page)
        return page


@pytest.fixture(scope="session")
def pages(programs: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(programs, tmp_path_factory.mktemp("pages"))
