"""The JSON report lands where it should and nowhere else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from whynan.diagnosis.engine import diagnose
from whynan.model import kind_of, number
from whynan.recording import Recording
from whynan.report import json_report


def test_a_symlink_stays_a_symlink(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    json_report.write(diagnose(Recording()), link)
    assert link.is_symlink()
    assert json.loads(real.read_text())["outcome"] == "clean"


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        json_report.write(diagnose(Recording()), pipe)
        assert json.loads(os.read(reader, 1 << 16))["schema"] == "whynan.report/1"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_file_has_ordinary_permissions(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    mask = os.umask(0o022)
    try:
        json_report.write(diagnose(Recording()), path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_nonfinite_numbers_are_strings() -> None:
    value = {"a": [float("nan"), float("inf")], "b": -float("inf"), "c": 1.5}
    assert json_report.strict(value) == {"a": ["nan", "inf"], "b": "-inf", "c": 1.5}


def test_numbers_read_well() -> None:
    assert [number(x) for x in (float("nan"), -float("inf"), 0.0, 1234567.0, None)] == [
        "NaN", "-inf", "0", "1.235e+06", "?",
    ]  # fmt: skip
    assert kind_of(complex(float("nan"), 1.0)) == "nan"
