"""`trace_arrays` names the first bad operation, on every library, and leaves the rest alone."""

from __future__ import annotations

import math
import warnings
from typing import Any

import array_api_strict
import numpy
import pytest

import whynan
from whynan.errors import AnomalyFound

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jax.numpy

LIBRARIES = {"numpy": numpy, "array-api-strict": array_api_strict, "jax": jax.numpy}
library = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)


def travel_times(xp: Any) -> Any:
    speeds = xp.asarray([3.0, 2.0, 0.0, 7.5], dtype=xp.float32)
    lengths = xp.asarray([1.0, 1.0, 4.0, 1.0], dtype=xp.float32)
    return lengths / speeds  # HERE


def inverse(xp: Any) -> Any:
    speeds = xp.asarray([3.0, 2.0, 0.0, 7.5], dtype=xp.float32)
    return 1.0 / speeds  # HERE


def standard_deviation(xp: Any) -> Any:
    x = xp.asarray([10000.0, 10000.1, 10000.2], dtype=xp.float32)
    variance = xp.mean(x * x) - xp.mean(x) * xp.mean(x) - 20.0
    return xp.sqrt(variance)  # HERE


def energy(xp: Any) -> Any:
    load = xp.asarray([2.0, 1e38], dtype=xp.float32)
    return load * load  # HERE


def entropy(xp: Any) -> Any:
    p = xp.asarray([0.5, 0.5, 0.0])
    return -xp.sum(p * xp.log(p))  # HERE


def growth(xp: Any) -> Any:
    return xp.exp(xp.asarray([1.0, 1000.0]))  # HERE


def mean_of_none(xp: Any) -> Any:
    x = xp.asarray([1.0, 2.0])
    return xp.mean(x[x > 5.0])  # HERE


PROGRAMS = {
    travel_times: ("division_by_zero", "inf", (2,)),
    inverse: ("division_by_zero", "inf", (2,)),
    standard_deviation: ("sqrt_negative", "nan", ()),
    energy: ("overflow", "inf", (1,)),
    entropy: ("log_nonpositive", "-inf", (2,)),
    growth: ("overflow", "inf", (1,)),
    mean_of_none: ("empty_reduction", "nan", ()),
}


@library
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_line_and_mechanism(library: Any, program: Any) -> None:
    mechanism, value, index = PROGRAMS[program]
    with pytest.raises(AnomalyFound) as raised:
        program(whynan.trace_arrays(library))
    (anomaly,) = raised.value.diagnosis.anomalies
    origin = anomaly.origin
    assert anomaly.finding.mechanism == mechanism
    assert origin.site is not None
    assert origin.site.source.endswith("# HERE")
    assert origin.site.file == __file__
    assert origin.outputs[0].first == index
    assert str(origin.value) == value
    assert "# HERE" in str(raised.value)


def test_the_report_names_operands_as_typed() -> None:
    with pytest.raises(AnomalyFound, match="`/` divided 4 by `speeds`, which is 0"):
        travel_times(whynan.trace_arrays(numpy))


@library
def test_what_came_in_or_was_written_is_passed_on(library: Any) -> None:
    xp = whynan.trace_arrays(library)
    x = xp.asarray([1.0, math.nan, -math.inf])
    y = (x * 2 - 1) / 3
    low = xp.where(xp.isnan(y), xp.asarray(-math.inf), y)
    shifted = low + math.inf
    assert float(xp.max(low)) == pytest.approx(1 / 3)
    assert tuple(shifted.shape) == (3,)
    assert bool(xp.isnan(xp.sum(x)))


@library
def test_a_fresh_fault_beside_an_old_one_is_still_seen(library: Any) -> None:
    xp = whynan.trace_arrays(library)
    x = xp.asarray([math.nan, 1.0, 0.0])
    with pytest.raises(AnomalyFound, match=r"first at \[2\]"):
        xp.asarray([1.0, 1.0, 1.0]) / x


@library
def test_healthy_code_gives_the_same_numbers(library: Any) -> None:
    def model(xp: Any) -> float:
        x = xp.reshape(xp.arange(12, dtype=xp.float32), (3, 4))
        weights = xp.asarray([[0.5], [1.0], [-1.0], [2.0]], dtype=xp.float32)
        h = xp.tanh(x @ weights + 1) ** 2
        parts = xp.concat([h, -h, abs(h)])
        total = parts[0, 0] + xp.sum(parts[1:, :]) + xp.stack([h, h])[1, 2, 0]
        return float(2 - total) + (1 if bool(total > 0) else 0)

    assert model(whynan.trace_arrays(library)) == model(library)


def test_numpy_arrays_and_methods_meet_traced_ones() -> None:
    xp = whynan.trace_arrays(numpy)
    x = xp.asarray([1.0, 4.0])
    assert (numpy.array([2.0, 2.0]) * x).tolist() == [2.0, 8.0]
    assert x.sum() == 5.0
    assert numpy.asarray(x).tolist() == [1.0, 4.0]
    assert xp.linalg.norm(xp.asarray([3.0, 4.0])) == 5.0
    x[0] = 9.0
    assert [float(v) for v in x] == [9.0, 4.0]
    assert len(x) == 2
    assert whynan.check(x)
    with pytest.raises(AnomalyFound, match="divided"):
        x / xp.zeros(2)
    with pytest.raises(AttributeError):
        _ = xp.no_such_function


def test_warn_goes_on() -> None:
    xp = whynan.trace_arrays(numpy, on_anomaly="warn")
    with pytest.warns(RuntimeWarning, match="result is inf because"):
        y = xp.asarray([1.0]) / xp.asarray([0.0])
    assert y.tolist() == [math.inf]
