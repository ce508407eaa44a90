"""Where data is bad when it comes in."""

from __future__ import annotations

import numpy
import torch

from tests.record.test_tracer import anomalies_of
from whynan.model import Anomaly


def read(table: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float32]]) -> Anomaly:
    def program() -> object:
        x = torch.from_numpy(table)
        return (x[17:] + 1).sum().item()

    return anomalies_of(program)[0]


def test_a_bad_column_is_not_a_matter_of_rows() -> None:
    table = numpy.ones((20, 4), dtype=numpy.float32)
    table[:, 2] = numpy.nan
    found = read(table)
    assert found.finding.observed[0] == "20 NaN of 80 values, first at [0, 2]"
    assert "nothing in column 2 is finite" in found.finding.observed
    assert [cause.evidence for cause in found.finding.causes] == [
        "20 of 80 cells are not finite, the first in row 0, column 2"
    ]
    assert [fix.kind for fix in found.finding.fixes] == ["clean_column"]


def test_bad_rows_are_a_matter_of_rows() -> None:
    table = numpy.ones((20, 4), dtype=numpy.float32)
    table[17:, 2] = numpy.nan
    found = read(table)
    assert found.finding.observed[0] == "3 NaN of 80 values, first at [17, 2]"
    assert [fix.kind for fix in found.finding.fixes] == ["clean_data"]
    table[:, 0] = numpy.inf
    assert [fix.kind for fix in read(table).finding.fixes] == ["clean_column", "clean_data"]
