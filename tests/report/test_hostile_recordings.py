"""A recording that somebody else made: it can neither steer a terminal nor read files nor stall."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import origin, recording
from whynan.errors import UsageError
from whynan.model import (
    Call,
    Circumstances,
    Evidence,
    Held,
    HistoryRow,
    Material,
    Site,
    TensorStats,
)
from whynan.recording import Recording
from whynan.report import html, json_report
from whynan.run.reopen import reopen, show

# Sets a title, hides what follows, turns a line around, rings, goes back to the line's start.
EVIL = "\x1b]0;owned\x07\x1b[8m\x9b31m\u202e\u2066\r\x00\x7f\u2028"
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FIELDS = {
    "subject", "message", "name", "op", "module", "file", "function", "source", "expression",
    "inside", "node", "incomplete", "effect", "parameter", "role", "script", "mode", "reproduced",
}  # fmt: skip


def poisoned(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {
            key: value + EVIL if key in FIELDS and isinstance(value, str) else poisoned(value)
            for key, value in plain.items()
        }
    return [poisoned(item) for item in plain] if isinstance(plain, list) else plain


def drawn(path: Path) -> tuple[str, str]:
    """The report as text and as a page."""
    diagnosis, text = reopen(path), io.StringIO()
    show(diagnosis, text)
    json.loads(json_report.dumps(diagnosis))
    return text.getvalue(), html.page(diagnosis)


def with_evidence(**changes: Any) -> Recording:
    [evidence] = recording().evidence
    return replace(recording(), evidence=(replace(evidence, **changes),))


def test_no_text_of_a_recording_steers_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.whynan"
    said = with_evidence(message="said", sink="exception", ranks=("rank 1" + EVIL,))
    replace(said, notes=("a note" + EVIL,), script="t.py", reproduced="live").save(path)
    plain = poisoned(json.loads(path.read_text()))
    [evidence] = plain["evidence"]
    evidence["quotes"] = {evidence["origin"]["site"]["file"]: {"3": "    x.log()  # " + EVIL}}
    path.write_text(json.dumps(plain))
    for text in drawn(path):
        assert not STEERS.findall(text)
        assert "owned" in text


def test_a_recording_quotes_no_file_that_it_does_not_carry(tmp_path: Path) -> None:
    secret = tmp_path / "passwd"
    secret.write_text("root:x:0:0\nroot:hidden\n" * 9)
    path = tmp_path / "run.whynan"
    site = Site(
        file=str(secret), line=2, end_line=4, column=0, end_column=4, function="f", source="typed"
    )
    other = replace(site, line=9, end_line=9, caller=replace(site, line=11, end_line=11))
    steps = (origin(op="aten.mul.Tensor", site=other),)
    with_evidence(origin=origin(site=site), path=steps, sink_site=other, quotes={}).save(path)
    plain = json.loads(path.read_text())
    carried: list[dict[str, dict[str, str]]] = [{}, {str(secret): {}}, {"t.py": {"3": "x"}}]
    for quotes in carried:
        plain["evidence"][0]["quotes"] = quotes
        path.write_text(json.dumps(plain))
        for text in drawn(path):
            assert "root:" not in text
            assert "passwd" in text


BIG = 10**4000
HUGE: dict[str, Callable[[], Recording]] = {
    "shape": lambda: with_evidence(origin=with_stats(shape=(2**62,) * 40)),
    "shape of many": lambda: with_evidence(origin=with_stats(shape=(2,) * 50_000)),
    "size": lambda: with_evidence(origin=with_stats(shape=(BIG,))),
    "counts": lambda: with_evidence(origin=with_stats(shape=(3,), nan=BIG, zeros=-BIG)),
    "line": lambda: with_evidence(origin=at(line=10**15, end_line=10**15)),
    "lines": lambda: with_evidence(origin=at(end_line=10**12)),
    "lines backwards": lambda: with_evidence(origin=at(line=10**6, end_line=-5)),
    "column": lambda: with_evidence(origin=at(column=10**14, end_column=10**15)),
    "step": lambda: with_evidence(step=BIG),
    "number": lambda: with_evidence(hyper={"lr": BIG}),
    "scalar": lambda: with_evidence(origin=origin(scalars={"dim": BIG})),
    "notes": lambda: replace(recording(), notes=("a note",) * 1_000_000),
    "long note": lambda: replace(recording(), notes=("a" * 30_000_000,)),
    "evidence": lambda: replace(recording(), evidence=recording().evidence * 20_000),
    "path": lambda: with_evidence(path=(origin(),) * 100_000),
    "history": lambda: replace(
        recording(), history=tuple(HistoryRow(step=10**17 * i) for i in range(3))
    ),
    "circumstances": lambda: with_evidence(around=Circumstances(workers=-BIG)),
}


def with_stats(**changes: Any) -> Any:
    stats = replace(TensorStats(shape=(2, 3), dtype="float32", min=0.0, max=1.0), **changes)
    [operand] = origin().inputs
    return origin(inputs=(replace(operand, stats=stats),))


def at(**changes: Any) -> Any:
    site = origin().site
    assert site is not None
    return origin(site=replace(site, **changes))


@pytest.mark.parametrize("make", HUGE.values(), ids=HUGE)
def test_sizes_that_no_program_has_are_refused_or_drawn(
    make: Callable[[], Recording], tmp_path: Path
) -> None:
    path = tmp_path / "run.whynan"
    made = replace(make(), evidence=tuple(map(carrying, make().evidence)))
    made.save(path)
    try:
        texts = drawn(path)
    except UsageError as error:
        texts = (str(error), "")
    assert "damaged whynan recording" in texts[0][:500] or "error[" in texts[0]
    assert max(map(len, texts)) < 5_000_000


def carrying(evidence: Evidence) -> Evidence:
    """So that saving it does not read files."""
    return replace(evidence, quotes={"t.py": {3: "x.log()"}})


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.whynan"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # of holes
    with pytest.raises(UsageError, match="too large"):
        reopen(path)


LOG = Call(op="aten.log.default", arguments='[[{"tensor": 0}], {}]')
ZERO = Held(shape=(1,), dtype="float32")
NOT_OURS = {
    "statement": Material(calls=(LOG,), tensors=(ZERO,), kind="-inf", settings=("open('x', 'w')",)),
    "two statements": Material(
        calls=(LOG,),
        tensors=(ZERO,),
        kind="-inf",
        settings=("torch.set_default_dtype(torch.float32);torch.hub",),
    ),
    "operation": Material(
        calls=(replace(LOG, op="aten.log(open('x', 'w')).default"),), tensors=(ZERO,), kind="-inf"
    ),
    "tensor": Material(calls=(LOG,), tensors=(replace(ZERO, shape=(1 << 50,)),), kind="-inf"),
}


@pytest.mark.parametrize("material", NOT_OURS.values(), ids=NOT_OURS)
def test_what_a_capsule_would_have_executed_is_refused(material: Material, tmp_path: Path) -> None:
    path = tmp_path / "run.whynan"
    with_evidence(materials=(material,)).save(path)
    with pytest.raises(UsageError, match="damaged whynan recording"):
        reopen(path)


def test_a_few_bytes_that_unpack_without_end_are_damage() -> None:
    from whynan.seam.packing import unpack

    bomb = base64.b85encode(zlib.compress(bytes(1 << 26))).decode()
    with pytest.raises(ValueError, match="damaged"):
        unpack(replace(ZERO, data=bomb))
