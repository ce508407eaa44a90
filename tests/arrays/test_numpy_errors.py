"""NumPy's errors are caught on their line, and the program's own wishes are respected."""

from __future__ import annotations

import numpy as np
import pytest

from whynan.arrays.numpy_errors import NumpyErrors
from whynan.diagnosis.engine import explain_evidence
from whynan.model import Anomaly


def travel() -> None:
    speeds = np.array([3.0, 0.0, 7.5], np.float32)
    _ = 1.0 / speeds  # HERE


def deviation() -> None:
    variance = {"x": np.array([4.0, -1.0, 9.0], np.float32)}
    _ = np.sqrt(variance["x"])  # HERE


def energy() -> None:
    load = np.array([1e38, 2.0], np.float32)
    _ = load * load  # HERE


def logarithm() -> None:
    income = np.array([[3.0, 0.0], [1.0, 2.0]])
    _ = np.log(income[0] * 2)  # HERE


def scalars() -> None:
    total, count = np.float64(0.0), np.float64(0.0)
    _ = total / count  # HERE


PROGRAMS = {
    travel: "division_by_zero",
    deviation: "sqrt_negative",
    energy: "overflow",
    logarithm: "log_nonpositive",
    scalars: "division_by_zero",
}


def caught(program: object) -> list[Anomaly]:
    with NumpyErrors() as errors:
        program()  # type: ignore[operator] # a function of no arguments
    return [explain_evidence(e) for e in errors.evidence]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_line_and_mechanism(program: object) -> None:
    (anomaly,) = caught(program)
    assert anomaly.finding.mechanism == PROGRAMS[program]  # type: ignore[index] # one of them
    assert anomaly.origin.site is not None
    assert anomaly.origin.site.source.endswith("# HERE")
    assert anomaly.origin.phase == "data"


def test_errstate_ignore_is_the_programs_word() -> None:
    def meant() -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            _ = np.array([1.0, 0.0]) / np.array([0.0, 0.0])

    assert caught(meant) == []


def test_finite_work_and_underflow_are_silent() -> None:
    def fine() -> None:
        x = np.array([1e-300, 2.0])
        _ = x * x / 3

    assert caught(fine) == []


def test_a_line_is_reported_once() -> None:
    def loop() -> None:
        for _ in range(3):
            _ = np.array([1.0]) / np.zeros(1)

    assert len(caught(loop)) == 1


def test_lost_operands_are_admitted() -> None:
    def in_place() -> None:
        x = np.array([1.0, 2.0])
        x /= np.zeros(2)

    (anomaly,) = caught(in_place)
    assert anomaly.finding.mechanism == "opaque"
    assert "NumPy reported `divide by zero` here" in (anomaly.evidence.incomplete or "")


def test_calls_with_effects_are_not_repeated() -> None:
    calls = []

    def count() -> np.ndarray:
        calls.append(1)
        return np.zeros(1)

    def program() -> None:
        _ = np.ones(1) / count()

    assert len(caught(program)) == 1
    assert calls == [1]


def test_settings_are_put_back_and_warnings_return() -> None:
    before = np.geterr(), np.geterrcall()
    with pytest.raises(KeyError), NumpyErrors():
        raise KeyError
    assert (np.geterr(), np.geterrcall()) == before
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        _ = np.ones(1) / np.zeros(1)
