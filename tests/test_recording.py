"""A saved run reads back as it was, on any machine, and a damaged file says so."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import origin, recording, save_case
from tests.harness import ForkServer
from whynan.codec import decode, encode
from whynan.diagnosis.engine import diagnose
from whynan.errors import WhynanError
from whynan.model import Evidence, HistoryRow, Operand, OpRecord, Scalar
from whynan.recording import SCHEMA, Recording, load
from whynan.report.plain import render_text
from whynan.run.reopen import reopen


def same(a: object, b: object) -> bool:
    """Equal, also where NaN is: a NaN never equals itself."""
    return repr(a) == repr(b)


def test_a_saved_recording_reads_back_as_it_was(tmp_path: Path) -> None:
    recording().save(tmp_path / "run.whynan")
    assert same(load(tmp_path / "run.whynan"), recording())


def test_a_text_that_reads_like_a_number_stays_a_text(tmp_path: Path) -> None:
    recording().save(tmp_path / "r")
    scalars = load(tmp_path / "r").evidence[0].origin.scalars
    assert scalars["p"] == math.inf
    assert scalars["name"] == "inf"
    assert scalars["keepdim"] is False


def test_the_file_is_strict_json_and_names_its_schema(tmp_path: Path) -> None:
    recording().save(tmp_path / "r")
    plain = json.loads((tmp_path / "r").read_text(), parse_constant=pytest.fail)
    assert plain["schema"] == SCHEMA
    assert plain["evidence"][0]["sink_value"] == "nan"


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, also the awkward ones."""
    known = {
        int: st.integers(), float: st.floats(), bool: st.booleans(), type(None): st.none(),
        str: st.text(st.characters(), max_size=8) | st.sampled_from(["nan", "inf", "-inf", "</script>"]),
    }  # fmt: skip
    if hint in known:
        return known[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return st.deferred(lambda: records_of(typing.cast(type, hint)))
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is Mapping:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    return st.one_of(*map(values_of, args))


def records_of(kind: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    nested = {"upstream": st.just(()), "caller": st.none()}  # else they would never end
    fields = {
        f.name: nested[f.name] if f.name in nested else values_of(hints[f.name])
        for f in dataclasses.fields(kind)
    }
    return st.builds(kind, **fields)


@given(values_of(Evidence) | values_of(HistoryRow) | values_of(Operand))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_survives_the_way_through_json(value: Any) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    assert same(decode(type(value), json.loads(text)), value)


def test_nested_operations_survive() -> None:
    deep = origin()
    for _ in range(30):
        operand = replace(origin().inputs[0], upstream=(deep,))
        deep = origin(inputs=(operand,))
    assert same(decode(OpRecord, json.loads(json.dumps(encode(deep)))), deep)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRow:
    """A history row of a later version."""

    step: int
    loss: float | None = None
    scale: float | None = None
    layers: Mapping[str, tuple[float, float]] | None = None
    extra: Mapping[str, Scalar] | None = None


def test_fields_that_a_later_version_adds_are_carried_and_ignored() -> None:
    row = LaterRow(
        step=1, loss=2.0, scale=math.inf, layers={"fc.weight": (1.0, math.nan)},
        extra={"norm": "inf", "p": math.inf, "nan": None},
    )  # fmt: skip
    plain = json.loads(json.dumps(encode(row)))
    assert same(decode(LaterRow, plain), row)
    old = decode(HistoryRow, plain)
    assert (old.step, old.loss) == (1, 2.0)
    assert decode(LaterRow, {"step": 4}) == LaterRow(step=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "or it is cut off"),
        (b"\x80\x02PK\xff", "it is not text"),
        (b"[1, 2]", "does not say `whynan.recording/1`"),
        (b'{"schema": "other/1"}', "does not say `whynan.recording/1`"),
        (b'{"schema": "whynan.report/1"}', "is a report"),
        (b'{"schema": "whynan.recording/9"}', "this whynan reads whynan.recording/1"),
        (b'{"schema": "whynan.recording/1", "steps": NaN}', "NaN is not JSON"),
        (b'{"schema": "whynan.recording/1", "steps": "x"}', "steps: expected a whole number"),
        (b'{"schema": "whynan.recording/1", "history": [{"step": 1}, {"loss": 1}]}', "history[1].step: missing"),
        (b'{"schema": "whynan.recording/1", "history": [{"step": 1, "loss": []}]}', "history[0].loss: expected a number"),
        (b'{"schema": "whynan.recording/1", "outcome": "fine"}', "outcome: expected one of clean"),
        (b"[" * 100_000, "cut off"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_recording_is_refused_with_the_reason(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(WhynanError) as raised:
        load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    recording().save(tmp_path / "r")
    text = (tmp_path / "r").read_text().rstrip()
    for end in range(0, len(text), 37):
        (tmp_path / "cut").write_text(text[:end])
        with pytest.raises(WhynanError):
            load(tmp_path / "cut")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WhynanError, match=r"nowhere.*No such file"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "case", ["distill_log_of_softmax", "grad_triplet_duplicate", "silent_hand_clip"]
)
def test_a_reopened_run_gives_the_report_of_the_live_one(
    case: str, tmp_path: Path, programs: ForkServer
) -> None:
    save_case(programs, case, tmp_path)
    live, live_json = (tmp_path / "live.txt").read_text(), (tmp_path / "live.json").read_text()
    assert "error[N" in live
    (tmp_path / "train.py").unlink()  # the recording holds the lines it quotes
    for folder in (tmp_path, tmp_path.parent):
        command = [sys.executable, "-m", "whynan", "report", str(tmp_path / "run.whynan")]
        out = subprocess.run(
            [*command, "--json", str(tmp_path / "again.json")],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        assert (out.returncode, out.stderr) == (0, "")
        assert out.stdout.startswith(live)
        rest = out.stdout[len(live) :]  # the history follows, when there is more than one step
        assert rest == "" or rest.startswith("history of steps 0 to ")
        assert (tmp_path / "again.json").read_text() == live_json


def test_a_healthy_run_is_reopened_as_healthy(tmp_path: Path) -> None:
    healthy = Recording(steps=12, torch_version="2.13", outcome="clean", script="t.py")
    healthy.save(tmp_path / "r")
    result = reopen(tmp_path / "r")
    assert (result.outcome, result.script, bool(result)) == ("clean", "t.py", False)
    assert render_text(result) == "whynan: no harm found in 12 steps\n"


def test_the_run_keeps_its_own_versions(tmp_path: Path) -> None:
    result = replace(diagnose(recording()), versions={"python": "3.99"}, mode="guard")
    recording().of(result).save(tmp_path / "r")
    again = reopen(tmp_path / "r")
    assert (again.versions, again.mode) == ({"python": "3.99"}, "guard")


def test_saving_into_a_missing_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        recording().save(tmp_path / "no" / "r")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_a_report_that_cannot_be_written_says_so(tmp_path: Path, option: str) -> None:
    recording().save(tmp_path / "r")
    missing = tmp_path / "no" / "report"
    done = subprocess.run(
        [sys.executable, "-m", "whynan", "report", "r", option, str(missing)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"whynan: cannot write {missing}: No such file or directory\n"
    assert "error[N012]" in done.stdout
