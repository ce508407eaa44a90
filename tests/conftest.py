"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import ForkServer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/cases/*/report.txt"
    )


@pytest.fixture(scope="session")
def programs() -> Iterator[ForkServer]:
    """Runs whole programs, with torch already imported."""
    server = ForkServer()
    yield server
    server.close()
