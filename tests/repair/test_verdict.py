"""The verdict on a changed run: what it takes to be a repair, from the course of loss and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import failing
from whynan.model import Cause, Diagnosis, HistoryRow
from whynan.trying.trial import Ran
from whynan.trying.verdict import Verdict, judge

Course = Sequence[tuple[float, float | None]]  # loss and largest gradient, step by step


def history(course: Course) -> tuple[HistoryRow, ...]:
    return tuple(HistoryRow(step=i, loss=x, grad_max=g) for i, (x, g) in enumerate(course))


def failed_at(step: int, before: Course = (), phase: Any = "forward") -> Diagnosis:
    whole = failing(history=history(before))
    first = whole.anomalies[0]
    evidence = replace(
        first.evidence,
        step=step,
        origin=replace(first.evidence.origin, step=step, phase=phase),
    )
    return replace(whole, anomalies=(replace(first, evidence=evidence),))


def verdict(before: Diagnosis, course: Course, **how: bool) -> Verdict:
    rows = history(course)
    after = replace(before, anomalies=(), outcome="clean", steps=len(rows), history=rows)
    return judge(Ran(diagnosis=after, code=0, seconds=1.0), before, **how)


LEARNING = [(2.0, 1.0), (1.8, 0.9), (1.7, 0.8)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [(27.6, 0.0)] * 5),  # it failed at once, and now learns nothing at all
        ([], [(0.0, 0.0)]),
        (LEARNING, [*LEARNING, (27.6, 0.0), (27.6, 0.0)]),
        # one more update, then never again
        (LEARNING, [*LEARNING, (1.6, 0.5), *[(1.5, 0.0)] * 9]),
    ],
)
def test_a_run_that_no_longer_learns_is_no_repair(before: Course, after: Course) -> None:
    found = verdict(failed_at(len(before), before), after)
    assert found.verdict == "failed"
    assert "gradient is 0" in found.evidence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # an empty batch has nothing to teach
        ([], [(0.0, 0.0), (1.8, 0.9), (1.7, 0.8)]),
        (LEARNING, [*LEARNING, (0.0, 0.0), (1.6, 0.7)]),
        (LEARNING, [*LEARNING, (0.0, 0.0)]),
        # nothing was learnt before it either: a frozen model
        ([(2.0, 0.0)] * 3, [(2.0, 0.0)] * 6),
        # alternating optimizers: one of them had no gradient before, too
        ([*LEARNING, (0.1, 0.0)], [*LEARNING, (0.1, 0.0), (1.6, 0.5), *[(1.5, 0.0)] * 4]),
        # the loss is at its end, and that is 0
        (LEARNING, [*LEARNING, (0.1, 0.5), *[(0.0, 0.0)] * 9]),
        # gradients that nobody measured
        ([], [(2.0, None)] * 4),
    ],
)
def test_a_gradient_of_zero_may_be_right(before: Course, after: Course) -> None:
    assert verdict(failed_at(len(before), before), after).verdict == "verified"


def test_the_same_mathematics_may_have_no_gradient() -> None:
    assert verdict(failed_at(0), [(2.0, 0.0)] * 4, exact=True).verdict == "verified"


@pytest.mark.parametrize(
    "later",
    [
        [2.3e7, 1.5, 1.4, 4.1e7, 1.6, 1.5],  # wherever the bound acts
        [900.0] * 20,  # stays far above all that was
    ],
)
def test_a_loss_that_leaps_is_no_repair(later: list[float]) -> None:
    course = [*LEARNING, *((x, 1.0) for x in later)]
    found = verdict(failed_at(3, LEARNING), course)
    assert found.verdict == "failed"
    assert "the loss leaps to" in found.evidence


@pytest.mark.parametrize(
    "later",
    [
        [27.6, 1.6, 1.5, 1.4],  # what a floor under a logarithm costs
        [27.6] * 20,
        [900.0, 30.0, 1.6, 1.5, 1.4],  # an odd batch, and back
    ],
)
def test_a_loss_that_comes_back_is_fine(later: list[float]) -> None:
    course = [*LEARNING, *((x, 1.0) for x in later)]
    assert verdict(failed_at(3, LEARNING), course).verdict == "verified"


def test_a_loss_that_was_there_before_the_change_is_no_leap() -> None:
    """The optimizer failed, not the loss: that loss is the program's own."""
    course = [*LEARNING, (1e30, 1.0), (9e29, 1.0), (8e29, 1.0)]
    assert verdict(failed_at(3, LEARNING, "optimizer"), course).verdict == "verified"


def test_a_large_loss_from_the_start_has_nothing_to_be_compared_with() -> None:
    assert verdict(failed_at(0), [(2e6, 1.0), (1e6, 1.0)]).verdict == "verified"
    assert verdict(failed_at(0), [(2e30, 1.0), (1e30, 1.0)]).verdict == "failed"


def test_the_same_mathematics_gives_the_right_loss_however_large() -> None:
    course = [*LEARNING, (4e6, 1.0), (4e6, 1.0)]
    assert verdict(failed_at(3, LEARNING), course, exact=True).verdict == "verified"


def test_an_odd_batch_may_have_an_odd_loss_but_the_others_come_back() -> None:
    plain = failed_at(3, LEARNING)
    first = plain.anomalies[0]
    outlier = Cause(code="bad_data", evidence="65535 in row 3 of column 2")
    finding = replace(first.finding, causes=(outlier,))
    odd = replace(plain, anomalies=(replace(first, finding=finding),))
    back = [*LEARNING, (1e7, 1.0), (1.6, 1.0), (9e6, 1.0), (1.5, 1.0), (1.4, 1.0)]
    assert verdict(plain, back).verdict == "failed"
    assert verdict(odd, back).verdict == "verified"
    assert verdict(odd, [*LEARNING, *[(1e7, 1.0)] * 5]).verdict == "failed"


def test_a_finite_update_that_makes_the_loss_rise_for_good_is_no_repair() -> None:
    before = failed_at(5, [(2.0, 1.0)] * 5, "optimizer")
    risen = [(2.0, 1.0)] * 6 + [(9.0, 1.0)] * 6
    assert "the updates are finite, but wrong" in verdict(before, risen).evidence
    assert verdict(before, [(2.0, 1.0)] * 12).verdict == "verified"
    assert verdict(failed_at(5, [(2.0, 1.0)] * 5), risen).verdict == "verified"


def test_a_gradient_of_one_over_a_floor_is_no_repair() -> None:
    course = [*LEARNING, (1.6, 1e8), (1.5, 0.7), (1.4, 0.6)]
    assert "the gradient leaps" in verdict(failed_at(3, LEARNING), course).evidence
    assert verdict(failed_at(3, LEARNING), course, exact=True).verdict == "verified"
    assert verdict(failed_at(0), course).verdict == "verified"  # nothing to compare with
