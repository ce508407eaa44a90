"""When whynan itself stumbles over harm, the harm is told all the same, and nothing else is hurt."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whynan
from tests.harness import ForkServer, Result
from tests.watching.test_policies import TRAIN, written

HARMFUL = TRAIN.replace("DROP", "False").replace("WORKERS", "0")
BY_HAND = TRAIN.replace("DROP", "True").replace("WORKERS", "0")
STREAMS = {
    "none": "import sys; sys.stderr = None",
    "closed": "import sys; sys.stderr.close()",
    "no stream": "import sys; sys.stderr = object()",
    "raising": """
import sys
class Gone:
    encoding = "utf-8"
    def write(self, text): raise OSError(5, "Input/output error")
    def flush(self): raise OSError(5, "Input/output error")
    def isatty(self): raise ValueError("gone")
sys.stderr = Gone()
""",
}


def first(result: Result) -> dict[str, Any]:
    assert result.report is not None, result.stderr
    assert result.report["anomalies"], result.stderr
    found: dict[str, Any] = result.report["anomalies"][0]
    return found


# ---- a standard error of the program's own ----------------------------------------------------


@pytest.mark.parametrize("live_steps", [0, 5])
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_harm_is_told_whatever_the_program_made_of_standard_error(
    stream: str, live_steps: int, programs: ForkServer, tmp_path: Path
) -> None:
    script = written(tmp_path, stream + HARMFUL)
    result = programs.run(script, mode="auto", live_steps=live_steps)
    assert result.code == 3
    assert first(result)["mechanism"] == "division_by_zero"
    assert result.stderr.count("error[N010]") == 1
    assert "stepped aside" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("mode", ["auto", "trace"])
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_skipping_goes_on_without_a_standard_error(
    stream: str, mode: str, programs: ForkServer, tmp_path: Path
) -> None:
    expected = programs.run(written(tmp_path, BY_HAND, "by_hand.py"), traced=False)
    script = written(tmp_path, stream + HARMFUL)
    result = programs.run(script, mode=mode, on_anomaly="skip")
    assert result.code == 3
    assert result.stdout == expected.stdout
    assert "error[N010]" in result.stderr
    assert "skipped" in result.stderr


@pytest.mark.parametrize("mode", ["auto", "trace", "guard"])
def test_warning_goes_on_without_a_standard_error(
    mode: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = written(tmp_path, STREAMS["none"] + HARMFUL)
    plain = programs.run(script, traced=False)
    result = programs.run(script, mode=mode, on_anomaly="warn", live_steps=5)
    assert (result.code, result.stdout) == (3, plain.stdout)
    assert result.stderr.count("error[") == 1


def test_what_could_not_be_said_at_once_is_said_at_the_end(
    programs: ForkServer, tmp_path: Path
) -> None:
    gone = "import os, sys\nkept = os.dup(2)\nos.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
    script = written(tmp_path, gone + HARMFUL + "os.dup2(kept, 2)\n")
    result = programs.run(script, mode="auto", on_anomaly="warn")
    assert result.code == 3
    assert result.stderr.count("error[N010]") == 1


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_watched_block_raises_and_reports_without_a_standard_error(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # put back afterwards
    exec(stream, {})
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(whynan.AnomalyFound), whynan.watch():
        train()
    with whynan.watch(on_anomaly="warn") as watching:
        assert train()[-1] != train()[-1]  # it came to its end, by NaN
    assert watching.diagnosis


def train() -> list[float]:
    torch.manual_seed(0)
    rows = torch.rand(72, 6) + 0.1
    rows[57] = 0
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8):
        loss = model(x / x.norm(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- faults of whynan's own, put into it by the program ---------------------------------------

# From the first bad batch on, this function of whynan's fails.
BREAK = """
import importlib
is_near = False
def note(x):
    global is_near
    is_near = is_near or bool((x == 0).all(dim=1).any())
    return False
module, name = {place!r}.split(":")
owner = importlib.import_module("whynan." + module)
*parts, name = name.split(".")
for part in parts:
    owner = getattr(owner, part)
original = getattr(owner, name)
def stumble(*args, **kwargs):
    if is_near or {always}:
        raise KeyError("a bug in whynan")
    return original(*args, **kwargs)
setattr(owner, name, stumble)
"""


def broken(place: str, *, always: bool = False) -> str:
    program = TRAIN.replace("DROP", "note(x)").replace("WORKERS", "0")
    return BREAK.format(place=place, always=always) + program


# Between the sight of harm and the report: where it began, the way back, what is said and how.
ON_THE_WAY = [
    "record.slicing:Slicer.evidence",
    "record.recorder:look_around",
    "record.recorder:with_the_dataset",
    "record.batches:Batches.save",
    "record.recorder:Recorder.resume",
    "record.recorder:Recorder.troubles",
    "watching.buffers:Buffers.restore",
    "seam.randomness:Randomness.restore",
    "watching.batches:Batches.repeat",
    "watching.replaying:is_conclusive",
    "watching.signs:is_conclusive",
    "watching.replaying:Replaying._is_over",
    "watching.history:History.sample",
    "watching.watch:Watch.recording",
    "diagnosis.engine:operand_names",
    "diagnosis.engine:_finding",
    "diagnosis.engine:chain_of",
    "run.telling:tell",
    "run.telling:diagnose",
    "report.terminal:draw",
    "report.terminal:styled",
    "report.html:write",
    "watching.capsule:parts",
]


LIVE = [place for place in ON_THE_WAY if place.startswith("record.")]


@pytest.mark.parametrize(
    ("place", "live_steps"), [(p, 0) for p in ON_THE_WAY] + [(p, 5) for p in LIVE]
)
def test_a_fault_on_the_way_to_the_report_hides_no_harm(
    place: str, live_steps: int, programs: ForkServer, tmp_path: Path
) -> None:
    script = written(tmp_path, broken(place))
    options: dict[str, Any] = {k: str(tmp_path / k) for k in ("html", "capsule")}
    result = programs.run(script, mode="auto", live_steps=live_steps, **options)
    assert result.code == 3, result.stderr
    assert "error[" in result.stderr or "went bad at step" in result.stderr
    assert result.stdout == ""
    if place != "run.telling:diagnose":  # without which there is no content
        assert first(result)


@pytest.mark.parametrize("policy", ["warn", "skip"])
@pytest.mark.parametrize(
    "place",
    [
        "record.slicing:Slicer.evidence",
        "record.recorder:Recorder.resume",
        "seam.randomness:Randomness.restore",
        "watching.batches:Batches.repeat",
        "watching.replaying:Replaying._is_over",
        "report.terminal:draw",
    ],
)
def test_a_fault_on_the_way_lets_the_program_go_on_and_is_told(
    place: str, policy: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = written(tmp_path, broken(place))
    result = programs.run(script, mode="auto", on_anomaly=policy, live_steps=0)
    assert result.code == 3, result.stderr
    assert "error[" in result.stderr or "went bad at step" in result.stderr
    assert len(result.stdout.split()) == 4  # the program came to its end


@pytest.mark.parametrize(
    "place", ["record.slicing:Slicer.evidence", "record.recorder:look_around", "run.telling:tell"]
)
@pytest.mark.parametrize("policy", ["stop", "warn"])
def test_a_fault_of_the_recorder_alone_hides_no_harm(
    place: str, policy: str, programs: ForkServer, tmp_path: Path
) -> None:
    result = programs.run(
        written(tmp_path, broken(place)), mode="trace", on_anomaly=policy
    )  # fmt: skip
    assert result.code == 3, result.stderr
    assert first(result)["step"] >= 0


# In the recorder, at every step: before there is any harm.
EARLY = [
    "record.losses:Losses.before",
    "record.updates:Updates.before",
    "record.recorder:Recorder.step_is_over",
]


@pytest.mark.parametrize("place", EARLY)
def test_where_the_recorder_breaks_the_guard_looks_on(
    place: str, programs: ForkServer, tmp_path: Path
) -> None:
    result = programs.run(written(tmp_path, broken(place, always=True)), mode="auto")
    assert "stepped aside" in result.stderr
    assert result.code == 3, result.stderr
    assert first(result)["sink"] in ("loss", "gradient")


# ---- what makes a report hard to draw ----------------------------------------------------------

CIRCUMSTANCES = {
    "source deleted": "import os; os.remove(__file__)",
    "source binary": "open(__file__, 'wb').write(bytes(range(256)) * 40)",
    "source in another encoding": "open(__file__, 'wb').write('ж\\n'.encode('utf-16') * 99)",
    "source cut off": "open(__file__, 'w').close()",
    "source a folder": "import os; os.remove(__file__); os.mkdir(__file__)",
    "source of long lines": "open(__file__, 'w').write(('x' * 100_000 + '\\n') * 60)",
    "no columns": "import os; os.environ['COLUMNS'] = '0'",
    "one column": "import os; os.environ['COLUMNS'] = '1'",
    "columns in words": "import os; os.environ['COLUMNS'] = 'wide'",
    "few letters": "import sys; sys.stderr = open(2, 'w', encoding='ascii', closefd=False)",
    "working folder gone": "import os, tempfile; os.chdir(t := tempfile.mkdtemp()); os.rmdir(t)",
}


@pytest.mark.parametrize("live_steps", [0, 5])
@pytest.mark.parametrize("circumstance", CIRCUMSTANCES.values(), ids=CIRCUMSTANCES)
def test_harm_is_told_where_a_report_is_hard_to_draw(
    circumstance: str, live_steps: int, programs: ForkServer, tmp_path: Path
) -> None:
    text = HARMFUL.replace("unit", "größe_单位")
    script = written(tmp_path, circumstance + text)
    line = next(i for i, row in enumerate((circumstance + text).splitlines(), 1) if "x.norm" in row)
    result = programs.run(script, mode="auto", live_steps=live_steps)
    assert result.code == 3, result.stderr
    assert first(result)["mechanism"] == "division_by_zero"
    assert f"script.py:{line}" in result.stderr
    assert "stepped aside" not in result.stderr


def test_an_output_that_fails_takes_no_other_along(programs: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "file").touch()
    script = written(tmp_path, HARMFUL)
    options: dict[str, Any] = {
        "html": str(tmp_path / "page"),  # a folder
        "tensorboard": str(tmp_path / "file" / "runs"),  # below a file
        "capsule": str(tmp_path / "file" / "capsule"),
        "recording": str(tmp_path / "run.whynan"),
    }
    result = programs.run(script, mode="auto", **options)
    assert result.code == 3
    assert first(result)["mechanism"] == "division_by_zero"
    assert whynan.load(tmp_path / "run.whynan").evidence
    assert result.stderr.count("error[N010]") == 1
    assert "stepped aside" not in result.stderr
    for what in (
        f"could not write {tmp_path / 'page'}",
        "TensorBoard gets nothing more",
        "capsule",
    ):
        assert what in result.stderr
