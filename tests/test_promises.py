"""Every promise in docs/promises.md names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/\S+\.py)::(\w+)`", (ROOT / "docs" / "promises.md").read_text())


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_promise_is_held_by_a_test_that_exists(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (ROOT / file).read_text()
