"""Fixtures shared by all tests."""

from __future__ import annotations

import shutil
import sys
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


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What `whynan lint` keeps between runs lies with the tests, not with the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_stays_compiled() -> Iterator[None]:
    """What one test compiles in this process is nothing that the next one's report should name."""
    yield
    if "torch._dynamo" in sys.modules:
        from whynan.seam.compiling import has_compiled

        if has_compiled():
            sys.modules["torch"].compiler.reset()


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
