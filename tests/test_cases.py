"""Real programs: the failing ones get the right answer, the healthy ones silence."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ForkServer, words_of_whynan
from whynan.seam.versions import HERE as TORCH
from whynan.seam.versions import release

HERE = Path(__file__).parent
CASES = sorted(p.parent for p in (HERE / "cases").glob("*/expected.json"))
HEALTHY = sorted((HERE / "healthy").glob("*.py"))
# What differs between processors: digits of computed values, and with them column widths.
SOURCE_LINE = re.compile(r"^ *\d+ \| |^ *--> ")
AS_WIDE_AS_THE_SOURCE = re.compile(r"^ *\d+ \| |^ *--> |^ *\| +[-^]+$")


HEALTHY_SINCE = {"zero_point_gradients": "2.7"}  # 2.6 gives `atan2` a NaN gradient at (0, 0)
ROOT = HERE.parent
PINNED = re.search(r"^torch==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.M)
# Of a `for` loop that is handed bad data, Python 3.13 marks what is iterated over, an older one all of it.
IS_PINNED = PINNED is not None and release(PINNED[1]) == TORCH and sys.version_info < (3, 13)


def facts(report: str) -> list[str]:
    """What a user acts on: the fault, and the line. How torch takes an operation apart on the
    way there differs between its releases (2.15 makes one `fill` of `y[:2] = 0.0`)."""
    lines = [line for line in report.splitlines() if line.startswith(("error[", "  --> "))]
    return [re.sub(r"(-->.*:\d+):\d+$", r"\1", line) for line in lines]


def fails_here(expected: dict[str, Any]) -> bool:
    """A later torch may give a finite gradient where this one's is not."""
    return release(expected.get("healthy_since", "99.0")) > TORCH


def normalised(report: str) -> list[str]:
    """Every word and every line number, but not the digits of computed values."""
    lines = []
    for line in report.splitlines():
        if not SOURCE_LINE.match(line):
            line = re.sub(r"(?<!line )(?<![\w.])[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "#", line)
            line = re.sub(r"[\^-]{2,}|\s+", " ", line)
        lines.append(line.rstrip())
    return [line for line in " ".join(lines).split(" = ") if line]


def test_there_are_enough_programs() -> None:
    assert len(CASES) >= 60
    assert len(HEALTHY) >= 35


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_origin_of(case: Path, programs: ForkServer, request: pytest.FixtureRequest) -> None:
    expected = json.loads((case / "expected.json").read_text())
    # What only a compiled function has is not there when its operations are recorded.
    result = programs.run(case / "script.py", mode=expected.get("mode", "trace"))
    assert result.report is not None, result.stderr
    if not fails_here(expected):
        assert (result.code, result.report["anomalies"]) == (0, [])
        return
    assert result.report["anomalies"], f"no harm seen\n{result.stderr}"
    first = result.report["anomalies"][0]
    seen = {**first, "file": first["location"]["file"], "line": first["location"]["line"]}
    keys = ("file", "line", "phase", "step", "mechanism", "value", "sink", "module")
    assert {k: seen[k] for k in keys if k in expected} == {
        k: expected[k] for k in keys if k in expected
    }
    assert expected.get("op_contains", "") in first["op"]
    assert set(expected["causes"]) <= {cause["code"] for cause in first["causes"]}
    assert result.code == 3
    assert result.report["outcome"] == "anomaly"
    assert not [note for note in result.report["notes"] if "stepped aside" in note]
    report = result.stderr[result.stderr.index("error[") :]
    golden = case / "report.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(report)
    same = normalised if IS_PINNED else facts
    assert same(report) == same(golden.read_text())
    assert (
        max(len(line) for line in report.splitlines() if not AS_WIDE_AS_THE_SOURCE.match(line))
        <= 80
    )


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_watching_gives_the_same_answer_on(case: Path, programs: ForkServer) -> None:
    expected = json.loads((case / "expected.json").read_text())
    result = programs.run(case / "script.py", mode="auto")
    assert result.report is not None, result.stderr
    if not fails_here(expected):
        assert (result.code, result.report["anomalies"]) == (0, [])
        return
    assert result.report["anomalies"], f"no harm seen\n{result.stderr}"
    first = result.report["anomalies"][0]
    seen = {**first, **{k: first["location"][k] for k in ("file", "line")}}
    keys = [k for k in ("file", "line", "phase", "step", "mechanism") if k in expected]
    assert {k: seen[k] for k in keys} == {k: expected[k] for k in keys}
    assert result.report["reproduced"] in ("live", "rewind", "body", "call", "rerun")
    assert "stepped aside" not in result.stderr
    assert result.code == 3


@pytest.mark.parametrize("mode", ["trace", "auto"])
@pytest.mark.parametrize("script", HEALTHY, ids=lambda p: p.stem)
def test_silence_on(script: Path, mode: str, programs: ForkServer) -> None:
    if release(HEALTHY_SINCE.get(script.stem, "0.0")) > TORCH:
        return  # there it is none of the healthy ones
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode=mode)
    assert watched.report is not None, watched.stderr
    assert watched.report["anomalies"] == []
    assert (watched.code, watched.stdout) == (plain.code, plain.stdout)
    assert words_of_whynan(watched.stderr) == []
