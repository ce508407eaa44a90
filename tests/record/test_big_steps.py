"""A step of ten thousand operations is explained, and the walk back visits each of them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import whynan
from whynan.model import Anomaly
from whynan.record import ancestry, relations, retention


def chain(length: int) -> torch.Tensor:
    """A NaN at the beginning of a long chain."""
    leaf = torch.ones(3, requires_grad=True)
    x = leaf - 1
    x = torch.log(x.abs()) * x
    for _ in range(length):
        x = x * 1.0001
    x.sum().backward()
    return leaf


def first_of(program: Callable[[], Any]) -> Anomaly:
    with whynan.trace() as trace:
        kept = program()
    del kept
    return whynan.diagnose(trace).anomalies[0]


def visited(program: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the walk back asks an operation what it read."""
    counted = 0
    asked = relations.reads

    def count(*args: Any) -> Any:
        nonlocal counted
        counted += 1
        return asked(*args)

    with monkeypatch.context() as patched:
        patched.setattr(ancestry, "reads", count)
        first_of(program)
    return counted


def test_the_origin_is_found_ten_thousand_operations_before_the_harm() -> None:
    found = first_of(lambda: chain(10_000))
    assert found.origin.site is not None
    assert found.origin.site.source == "x = torch.log(x.abs()) * x"
    assert found.finding.mechanism == "log_nonpositive"


def test_the_walk_is_linear_in_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    short = visited(lambda: chain(200), monkeypatch)
    long = visited(lambda: chain(800), monkeypatch)
    assert long <= 4.2 * short


def test_what_was_forgotten_for_want_of_room_is_not_called_the_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "MAX_RECORDS", 400)
    monkeypatch.setattr(retention, "MANY_RECORDS", 100)
    found = first_of(lambda: chain(2_000))
    assert found.evidence.origin_kind in ("unseen", "operation")
    if found.evidence.origin_kind == "operation":  # it was kept after all
        assert found.origin.site is not None
        assert "log" in found.origin.site.source
