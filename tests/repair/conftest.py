"""Fixtures of the repair tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.repair.forked import RepairServer


@pytest.fixture(scope="session")
def repairs() -> Iterator[RepairServer]:
    server = RepairServer()
    yield server
    server.close()
