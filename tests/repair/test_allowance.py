"""The time for trying is that of work: a busy machine costs no change."""

from __future__ import annotations

import pytest

from whynan.trying.allowance import Allowance
from whynan.trying.trial import Ran


def ran(seconds: float, cpu_s: float | None) -> Ran:
    return Ran(diagnosis=None, code=0, seconds=seconds, cpu_s=cpu_s)


def test_waiting_for_a_processor_costs_nothing() -> None:
    allowance = Allowance(100.0)
    allowance.spend(ran(40.0, 10.0))
    assert allowance.left == pytest.approx(min(90.0 * 4, 300.0), abs=5.0)


def test_several_threads_are_counted_by_the_clock() -> None:
    allowance = Allowance(100.0)
    allowance.spend(ran(10.0, 80.0))
    assert allowance.left == pytest.approx(90.0, abs=1.0)


def test_where_processor_time_is_not_told_the_clock_counts() -> None:
    allowance = Allowance(100.0)
    allowance.spend(ran(30.0, None))
    assert allowance.left == pytest.approx(70.0, abs=1.0)
