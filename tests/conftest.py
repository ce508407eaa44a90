"""Fixtures shared by all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.harness import ForkServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/cases/*/report.txt"
    )
    parser.addoption(
        "--every-case", action="store_true", help="all of tests/cases on the toy accelerator"
    )


@pytest.fixture(scope="session")
def programs() -> Iterator[ForkServer]:
    """Runs whole programs, with torch already imported."""
    server = ForkServer()
    yield server
    server.close()


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if find_chromium() is None:
        terminalreporter.write_line("tests/browser left out: there is no chromium on this machine")
