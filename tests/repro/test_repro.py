"""A repro stands alone: one operation, small, without the program's values, seen failing."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.harness import ForkServer
from tests.run.starting import run
from whynan.codec import encode
from whynan.errors import UsageError
from whynan.recording import load
from whynan.repro.child import make
from whynan.repro.making import check_folder

SECRET = 0.73186  # stands in the program's data
TRAINS = """
import torch
from torch import nn

torch.manual_seed(0)
patients = torch.rand(40, 6)
patients[3] = {secret}
dose_of_patient = nn.Parameter(torch.rand(6))
optimizer = {optimizer}
for epoch in range(2):
    {body}
    loss.backward()
    optimizer.step()
"""
SGD = "torch.optim.SGD([dose_of_patient], lr=0.1)"
ADAM = "torch.optim.Adam([dose_of_patient], lr=0.1, eps=0.0)"
# What fails, the optimizer, and what the repro calls.
PROGRAMS = {
    "logarithm": ("loss = torch.log((patients @ dose_of_patient) * 0).sum()", SGD, "torch.log(x)"),
    "quotient": ("loss = ((patients @ dose_of_patient) / (patients - patients).sum(1)).sum()", SGD, "x / y"),
    "softmax": ("loss = (patients * dose_of_patient + torch.full((6,), -torch.inf)).softmax(1).sum()", SGD, "softmax("),
    "half": ("loss = ((patients.half() * 500) @ (dose_of_patient.half() * 500)).sum().float()", SGD, "@"),
    "gradient of a root": ("loss = ((patients - patients) * dose_of_patient).pow(2).sum(1).sqrt().sum()", SGD, "torch.sqrt(x)"),
    "gradient of a norm by hand": ("loss = torch.pow((dose_of_patient * 0).abs(), 0.5).sum()", SGD, "x ** 0.5"),
    "fused update": ("loss = (dose_of_patient * 1e21).sum()", ADAM.replace("eps=0.0", "fused=True"), "_fused_adam"),
    "update": ("loss = (dose_of_patient * torch.tensor([0.0, 1, 1, 1, 1, 1])).sum()", ADAM, "addcdiv"),
}  # fmt: skip


def material(programs: ForkServer, folder: Path, body: str, optimizer: str = SGD) -> Any:
    """What a run keeps of the failing operation."""
    script, recording = folder / "program.py", folder / "recording.json"
    script.write_text(textwrap.dedent(TRAINS).format(secret=SECRET, optimizer=optimizer, body=body))
    programs.run(script, recording=str(recording), keep_operands=True)
    return load(recording).evidence[0]


def drafted(evidence: Any, folder: Path, *, keep_values: bool = False) -> dict[str, Any]:
    out = folder / "repro"
    out.mkdir()
    task = {"materials": encode(evidence.materials), "folder": str(out), "keep_values": keep_values, "budget_s": 3.0}  # fmt: skip
    return make(task)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_operation_stands_alone_without_the_program(
    name: str, programs: ForkServer, tmp_path: Path
) -> None:
    body, optimizer, call = PROGRAMS[name]
    evidence = material(programs, tmp_path, body, optimizer)
    answer = drafted(evidence, tmp_path)
    assert "why" not in answer, answer
    text = (tmp_path / "repro" / "repro.py").read_text()
    assert call in text
    assert len(text.splitlines()) <= 40
    assert set(re.findall(r"^import (\w+)", text, re.M)) <= {"torch", "json", "pathlib"}
    assert answer["backward"] == name.startswith("gradient")
    with pytest.raises(AssertionError, match="is not finite"), contextlib.redirect_stdout(io.StringIO()):  # fmt: skip
        runpy.run_path(str(tmp_path / "repro" / "repro.py"))
    told = text + (tmp_path / "repro" / "README.md").read_text()
    for word in ("patients", "dose", "epoch", "program.py", str(SECRET)[:6]):
        assert word not in told
    assert answer["kept"] == 0
    assert "None of the program's values are in it" in told


def test_it_is_made_small(programs: ForkServer, tmp_path: Path) -> None:
    body = "loss = torch.log((patients @ dose_of_patient) * (torch.arange(40) != 17)).sum()"
    drafted(material(programs, tmp_path, body), tmp_path)
    text = (tmp_path / "repro" / "repro.py").read_text()
    assert "x = torch.tensor([0.0])" in text
    readme = (tmp_path / "repro" / "README.md").read_text()
    assert "| `x` | float32 | 1 | 0 | 0 | 40 |" in readme


def test_values_can_be_kept(programs: ForkServer, tmp_path: Path) -> None:
    body = (
        "loss = torch.acos(patients[3:4] * 0 + patients[3:4] + 1.5).sum() * dose_of_patient.sum()"
    )
    drafted(material(programs, tmp_path, body), tmp_path, keep_values=True)
    assert f"{SECRET + 1.5:.4f}"[:5] in (tmp_path / "repro" / "repro.py").read_text()


def test_the_readme_has_what_an_issue_needs(programs: ForkServer, tmp_path: Path) -> None:
    drafted(material(programs, tmp_path, PROGRAMS["half"][0]), tmp_path)
    text = (tmp_path / "repro" / "README.md").read_text()
    for part in ("# `", "python repro.py", "is not finite", "## Versions", "* torch: ", "* Python: ", "* platform: ", "In float64 the same operation is finite", "## Values"):  # fmt: skip
        assert part in text


def test_data_that_came_in_bad_has_no_repro(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    numpy.save(tmp_path / "data.npy", numpy.array([1.0, numpy.nan]))
    script.write_text(
        "import numpy, torch\nx = torch.from_numpy(numpy.load('data.npy'))\nprint(x.sum().item())\n"
    )
    done = run("--out", "out", "--", "train.py", cwd=tmp_path, command="repro")
    assert done.returncode == 3
    assert "no repro: the bad value came in with the data" in done.stderr
    assert not (tmp_path / "out").exists()


def test_from_the_command_line_to_a_fresh_process(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nw = torch.zeros(5)\nprint(torch.log(w - 0.5).sum().item())\n")
    done = run("--repro", "out", "train.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "repro.py shows it: " in done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["README.md", "repro.py"]
    assert "torch.log(x)" in (tmp_path / "out" / "repro.py").read_text()


def test_a_healthy_program_keeps_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint(torch.ones(2).sum().item())\n")
    done = run("--", "train.py", cwd=tmp_path, command="repro")
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert "no harm was found" in done.stderr
    assert not (tmp_path / "whynan-repro").exists()


def test_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        check_folder(tmp_path)


def test_a_recording_without_operands_says_so(programs: ForkServer, tmp_path: Path) -> None:
    script, recording = tmp_path / "program.py", tmp_path / "recording.json"
    script.write_text("import torch\nprint(torch.log(torch.zeros(2)).sum().item())\n")
    programs.run(script, recording=str(recording))
    assert json.loads(recording.read_text())
    done = run("recording.json", cwd=tmp_path, command="repro")
    assert done.returncode == 3
    assert "no repro: the operands were no longer in memory" in done.stderr


def test_dimensions_that_are_the_same_one_shrink_together(
    programs: ForkServer, tmp_path: Path
) -> None:
    """A batch of six, targets of up to six: two dimensions of one tensor have the same length."""
    body = (
        "loss = torch.nn.functional.ctc_loss((patients[:6, :6].expand(4, 6, 6) * dose_of_patient).log_softmax(-1), "
        "torch.ones(6, 6, dtype=torch.int64), torch.full((6,), 4), torch.full((6,), 6))"
    )
    drafted(material(programs, tmp_path, body), tmp_path)
    text = (tmp_path / "repro" / "repro.py").read_text()
    assert "6, 6" not in text
