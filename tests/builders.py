"""Short makers of recordings: by hand, and from the programs in `cases/`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.harness import ForkServer
from whynan.diagnosis.engine import diagnose
from whynan.model import (
    Diagnosis,
    Evidence,
    HistoryRow,
    Operand,
    OpRecord,
    Site,
    TensorStats,
)
from whynan.recording import Recording

CASES = Path(__file__).parent / "cases"
TRACE_AND_SAVE = """
import runpy, sys
from pathlib import Path
from whynan.errors import StopRun
from whynan.diagnosis.engine import diagnose
from whynan.report import json_report
from whynan.run.blocks import traced

block = traced(stops=True)
block.start()
error = None
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except (StopRun, Exception) as raised:
    error = raised
try:
    block.stop(error)
except StopRun:
    pass
result = diagnose(block.recording(), script=sys.argv[1])
Path("live.txt").write_text(str(result))
json_report.write(result, Path("live.json"))
block.recording().of(result).save("run.whynan")
"""


def origin(**changes: Any) -> OpRecord:
    stats = TensorStats(shape=(2, 3), dtype="float32", min=0.0, max=1.0, zeros=2)
    site = Site(
        file="t.py", line=3, end_line=3, column=4, end_column=9, function="f", source="x.log()"
    )
    record = OpRecord(
        index=7, op="aten.log.default", phase="forward", step=2, site=site,
        inputs=(Operand(role="self", stats=stats, name="x", index=(0, 1), value=0.0),),
        outputs=(Operand(role="out", stats=stats, value=-math.inf, dtype="float32"),),
        scalars={"dim": 1, "keepdim": False, "reduction": "mean", "p": math.inf, "name": "inf"},
    )  # fmt: skip
    return replace(record, **changes)


def recording() -> Recording:
    evidence = Evidence(
        sink="loss", subject="loss", step=2, origin=origin(), origin_kind="operation",
        path=(origin(op="aten.mul.Tensor"),), sink_value=math.nan, hyper={"lr": 0.1},
        quotes={"t.py": {3: "    x.log()"}},
    )  # fmt: skip
    rows = (HistoryRow(step=0, loss=1.5, lr=0.1), HistoryRow(step=1, loss=math.inf))
    return Recording(evidence=(evidence,), steps=2, history=rows, torch_version="2.13")


def failing(**changes: Any) -> Diagnosis:
    """An explained run that failed at step 2."""
    return replace(diagnose(recording(), script="t.py"), **changes)


def save_case(programs: ForkServer, case: str, folder: Path) -> Path:
    """Run a failing program up to its first harm; it leaves a recording and its live report."""
    folder.mkdir(exist_ok=True)
    for file in (CASES / case).iterdir():
        if file.name not in ("expected.json", "report.txt"):
            name = "train.py" if file.name == "script.py" else file.name
            (folder / name).write_bytes(file.read_bytes())
    driver = folder / "driver.py"
    driver.write_text(TRACE_AND_SAVE)
    done = programs.run(driver, "train.py", cwd=folder, traced=False)
    assert done.code == 0, done.stderr
    return folder / "run.whynan"
