"""NumPy's errors are caught on their line, and the program's own wishes are respected."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from tests.harness import words_of_whynan
from whynan.arrays.numpy_errors import event_of
from whynan.arrays.numpy_watch import NumpyWatch
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


def nested() -> None:
    row = np.full(4, 2.5)
    _ = (row - row.mean()) / row.std(axis=0)  # HERE


def selected() -> None:
    x = np.arange(3.0)
    _ = x[x > 5].mean()  # HERE


def in_place() -> None:
    x, total = np.ones((2, 2)), np.zeros(2)
    x /= total  # HERE


def cast() -> None:
    pressure = np.array([101325.0])
    _ = pressure.astype(np.float16)  # HERE


def infinities() -> None:
    upper = np.full(2, np.inf)
    _ = upper - upper  # HERE


def product() -> None:
    w = np.full((2, 2), 1e200)
    _ = w @ w  # HERE


def scalars() -> None:
    total, count = np.float64(0.0), np.float64(0.0)
    _ = total / count  # HERE


PROGRAMS = {
    travel: "division_by_zero",
    deviation: "sqrt_negative",
    energy: "overflow",
    logarithm: "log_nonpositive",
    scalars: "division_by_zero",
    nested: "division_by_zero",
    selected: "empty_reduction",
    in_place: "division_by_zero",
    cast: "overflow",
    infinities: "inf_minus_inf",
    product: "overflow",
}


def caught(program: object) -> list[Anomaly]:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda *args, **options: None  # they are meant
        watch = NumpyWatch()
        watch.start()
        try:
            program()  # type: ignore[operator] # a function of no arguments
        finally:
            watch.stop()
    return [explain_evidence(e.evidence) for e in watch.events]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_line_and_mechanism(program: object) -> None:
    anomaly = caught(program)[0]
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
    def overwritten() -> None:
        x = np.full(3, 2.0)
        x -= x.mean()
        x /= x.std()

    (anomaly,) = caught(overwritten)
    assert anomaly.finding.mechanism == "division_by_zero"  # by what NumPy said
    assert anomaly.finding.observed == ("NumPy said `invalid value encountered in divide` here",)
    assert anomaly.finding.inferred == ("0 divided by 0: the other way, inf by inf, is rare",)
    assert "operands, which were overwritten" in (anomaly.evidence.incomplete or "")
    assert anomaly.origin.out is not None
    assert anomaly.origin.out.nan == 3


def test_calls_with_effects_are_not_repeated() -> None:
    calls = []

    def count() -> np.ndarray:
        calls.append(1)
        return np.zeros(1)

    def program() -> None:
        _ = np.ones(1) / count()

    assert len(caught(program)) == 1
    assert calls == [1]


def test_filters_and_recorded_warnings_are_the_programs_word() -> None:
    def filtered() -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore")
            _ = np.ones(1) / np.zeros(1)

    def recorded() -> None:
        with warnings.catch_warnings(record=True) as log:
            _ = np.ones(1) / np.zeros(1)
        assert len(log) == 1

    assert caught(filtered) == []
    assert caught(recorded) == []


def test_nothing_of_ours_stays_and_numpys_settings_are_not_touched(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = vars(warnings)
    before = np.geterr(), np.geterrcall(), module["_showwarnmsg"], np.save

    def program() -> None:
        assert (np.geterr(), np.geterrcall()) == before[:2]
        _ = np.ones(1) / np.zeros(1)
        raise KeyError

    with pytest.raises(KeyError):
        caught(program)
    assert (np.geterr(), np.geterrcall(), module["_showwarnmsg"], np.save) == before
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        _ = np.ones(1) / np.zeros(1)
    assert words_of_whynan(capsys.readouterr().err) == []


@pytest.mark.parametrize(
    ("words", "mechanism"),
    [
        ("divide by zero encountered in log", "log_nonpositive"),
        ("invalid value encountered in scalar sqrt", "sqrt_negative"),
        ("overflow encountered in exp", "overflow"),
        ("invalid value encountered in arccos", "invalid_domain"),
        ("Mean of empty slice", "empty_reduction"),
        ("divide by zero encountered in power", "division_by_zero"),
        (
            "invalid value encountered in reduce",
            "opaque",
        ),  # an infinity minus one, or something else
    ],
)
def test_numpys_words_prove_the_mechanism_where_the_operands_are_gone(
    words: str, mechanism: str
) -> None:
    event = event_of(sys._getframe(), words)
    assert event is not None
    assert explain_evidence(event.evidence).finding.mechanism == mechanism


def test_a_second_run_also_hears_what_the_program_tells_numpy_to_ignore(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch, before = NumpyWatch(), (np.geterr(), np.seterr)
    watch.hear_hidden()
    try:
        old = np.seterr(all="ignore")
        quotient = np.zeros(1) / np.zeros(1)
        said = np.seterr(**old)
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            _ = np.ones(1) / np.zeros(1)
    finally:
        watch.stop()
    assert np.isnan(quotient).all()
    assert set(said.values()) == {"ignore"}
    assert [str(w.message) for w in log] == ["divide by zero encountered in an operation"]
    assert [e.is_hidden for e in watch.events][:1] == [True]
    assert (np.geterr(), np.seterr) == before
    assert words_of_whynan(capsys.readouterr().err) == []


def test_an_underflow_that_a_program_asks_for_is_no_error_of_ours() -> None:
    watch = NumpyWatch()
    watch.hear_hidden()
    try:
        np.seterr(all="call")
        assert np.float64(1e-300) * np.float64(1e-300) == 0
    finally:
        watch.stop()
