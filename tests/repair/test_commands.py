"""`whynan fix` and `whynan whatif` as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.repair.forked import RepairServer
from whynan.run.program import Program
from whynan.trying.whatif import Row, WhatIf, reading

LOSSES = """
import torch


def soft_loss(logits, target):
    probs = torch.softmax(logits, dim=-1)  # per class
    # cross entropy with soft targets
    return -(target * torch.log(probs)).sum(-1).mean()
"""
TRAIN = """
import sys
import torch
from losses import soft_loss

scale = float(sys.argv[1])
w = torch.tensor([[0.0, scale]], requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(4):
    loss = soft_loss(w, torch.tensor([[0.5, 0.5]]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained")
"""


def whynan(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whynan", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "losses.py").write_text(LOSSES)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_fix_applies_a_verified_change_in_the_imported_file(project: Path) -> None:
    """Also with bytecode of the unchanged file lying about, which the trial must not use."""
    subprocess.run(
        [sys.executable, "-c", "import py_compile; py_compile.compile('losses.py')"],
        cwd=project,
        check=True,
    )
    files = ("--json", "report.json", "--html", "report.html")
    done = whynan("fix", "--apply", *files, "train.py", "200", cwd=project)
    assert done.returncode == 0, done.stderr
    text = (project / "losses.py").read_text()
    assert "return -(target * torch.log_softmax(logits, dim=-1)).sum(-1).mean()" in text
    assert "# cross entropy with soft targets" in text
    assert "softmax(logits, dim=-1)  # per class" not in text
    assert (project / "train.py").read_text() == TRAIN
    report = json.loads((project / "report.json").read_text())
    fix = report["anomalies"][0]["fixes"][0]
    assert (fix["kind"], fix["verdict"]) == ("log_softmax", "verified")
    assert "4 steps run, past step 0" in fix["evidence"]
    assert "--- a/losses.py" in fix["patch"]
    assert "✓ verified" in (project / "report.html").read_text()
    assert "help: take the logarithm before the small values are rounded away" in done.stderr
    assert "undo with: patch -R -p1 < whynan-fix.patch" in done.stderr
    subprocess.run(["git", "apply", "-R", "-p1", "whynan-fix.patch"], cwd=project, check=True)
    assert (project / "losses.py").read_text() == LOSSES


def test_a_second_change_keeps_the_way_back_of_the_first(project: Path) -> None:
    (project / "whynan-fix.patch").write_text("of the first change")
    done = whynan("fix", "--apply", "train.py", "200", cwd=project)
    assert "undo with: patch -R -p1 < whynan-fix-2.patch" in done.stderr
    assert (project / "whynan-fix.patch").read_text() == "of the first change"
    subprocess.run(["git", "apply", "-R", "-p1", "whynan-fix-2.patch"], cwd=project, check=True)
    assert (project / "losses.py").read_text() == LOSSES


EDITED_MEANWHILE = """
import os
import torch
from losses import soft_loss

{when}
    with open("losses.py", "a") as stream:
        stream.write("# a thought of the user's\\n")
w = torch.tensor([[0.0, 200.0]], requires_grad=True)
soft_loss(w, torch.tensor([[0.5, 0.5]])).backward()
"""


@pytest.mark.parametrize(
    "when", ["if not os.path.exists('once') and not open('once', 'w').close():", "if True:"]
)
def test_an_edit_while_changes_are_tried_is_kept(project: Path, when: str) -> None:
    """The program itself plays the user: during the first run, and during a trial as well."""
    (project / "train.py").write_text(EDITED_MEANWHILE.format(when=when))
    done = whynan("fix", "--apply", "train.py", cwd=project)
    assert done.returncode == 2
    assert "losses.py changed since it was run; nothing was written" in done.stderr
    text = (project / "losses.py").read_text()
    assert text.removeprefix(LOSSES).startswith("# a thought of the user's\n")
    assert not list(project.glob("*.patch"))


def test_fix_leaves_a_healthy_program_alone(project: Path) -> None:
    done = whynan("fix", "--apply", "train.py", "2", cwd=project)
    assert done.returncode == 0
    assert done.stdout == "trained\n"
    assert "no harm in 4 steps; nothing to fix" in done.stderr
    assert (project / "losses.py").read_text() == LOSSES
    assert sorted(p.name for p in project.iterdir() if p.name != "__pycache__") == [
        "losses.py",
        "train.py",
    ]


def test_fix_of_a_script_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = whynan("fix", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "can't open 'nowhere.py'" in done.stderr


DIVERGING = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=30.0, momentum=0.5)
for step in range(40):
    loss = ((net(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_whatif_tells_a_high_rate_from_a_formula(repairs: RepairServer, tmp_path: Path) -> None:
    script = tmp_path / "diverging.py"
    script.write_text(textwrap.dedent(DIVERGING))
    table = repairs.whatif(script)
    outcomes = {row["name"]: row["outcome"] for row in table["rows"]}
    assert outcomes["baseline"] == "dies"
    assert outcomes["lr_hundredth"] == "survives"
    assert outcomes["clip"] == "survives"
    assert outcomes["standardise"] == "dies"
    assert outcomes["no_weight_decay"] == outcomes["half_batch"] == "does not apply"
    assert outcomes["float64"] == "diverges"  # finite, but only because float64 is wider
    assert table["reading"] == ["it survives at a lower learning rate: the updates are too large"]
    page = script.with_suffix(".html").read_text()
    for words in ("What if", "learning rate x 0.01", "survives", table["reading"][0]):
        assert words in page


LOG_OF_SOFTMAX = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=5.0)
x, y = torch.randn(16, 4) * 5, torch.randint(0, 3, (16,))
for step in range(60):
    p = torch.softmax(net(x), -1)
    loss = -torch.log(p)[torch.arange(16), y].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_whatif_does_not_blame_the_rate_for_a_formula(
    repairs: RepairServer, tmp_path: Path
) -> None:
    """A lower rate only keeps the values away from where a logarithm of a softmax fails."""
    script = tmp_path / "log_of_softmax.py"
    script.write_text(LOG_OF_SOFTMAX)
    table = repairs.whatif(script)
    outcomes = {row["name"]: row["outcome"] for row in table["rows"]}
    assert outcomes["lr_tenth"] == "survives"
    (said,) = table["reading"]
    assert "it is the formula: logarithm of a softmax; `log_softmax`" in said


def row(name: str, outcome: str, steps: int = 3) -> Row:
    return Row(name=name, title=name, outcome=outcome, steps=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("survivors", "says"),
    [
        ((), "fails at the same step whatever is changed"),
        (("float64",), "in float64 only: the type has too few digits"),
        (("float64", "bfloat16"), "in a type of wider range"),
        (("default_init",), "initial weights"),
        (("same_batch",), "some later batch"),
        (("clip",), "single large gradients"),
    ],
)
def test_the_reading_follows_from_the_rows(survivors: tuple[str, ...], says: str) -> None:
    names = ("float64", "bfloat16", "clip", "lr_tenth", "default_init", "same_batch")
    rows = [row("baseline", "dies")]
    rows += [row(n, "survives" if n in survivors else "dies") for n in names]
    assert says in reading(rows)[0]


def test_the_reading_points_to_what_gets_furthest() -> None:
    """Clipping keeps it finite; only scaled inputs let it learn."""
    rows = [
        row("baseline", "dies"),
        Row(name="clip", title="clip", outcome="survives", steps=26, final_loss=4.1e4),
        Row(name="standardise", title="scaled", outcome="survives", steps=26, final_loss=102.9),
    ]
    assert reading(rows) == ["it survives with standardised inputs: the scale of the data"]
    rows[2] = Row(name="standardise", title="scaled", outcome="survives", steps=26, final_loss=4e4)
    assert reading(rows) == ["it survives with clipping: single large gradients"]


@pytest.mark.parametrize(
    ("mechanism", "bfloat16", "says"),
    [
        ("overflow", "does not apply", "the type is narrow"),
        ("sqrt_negative", "does not apply", "too few digits"),
        ("overflow", "dies", "too few digits"),
    ],
)
def test_the_reading_tells_digits_from_range(mechanism: str, bfloat16: str, says: str) -> None:
    rows = [
        Row(name="baseline", title="", outcome="dies", note=f"line 3: {mechanism}"),
        row("float64", "survives"),
        row("bfloat16", bfloat16),
        row("standardise", "survives"),
    ]
    assert says in reading(rows)[0]


def test_the_table_of_whatif_cuts_nothing_off(capsys: pytest.CaptureFixture[str]) -> None:
    note = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double"
    table = WhatIf(program=Program(target="x.py"), run=lambda *a, **k: None, budget_s=1.0)  # type: ignore[arg-type]
    table._add(Row(name="float64", title="everything in float64", outcome="crashes", note=note))
    shown = capsys.readouterr().err
    assert " ".join(shown.split()) == f"everything in float64 crashes: {note}"
    assert max(map(len, shown.splitlines())) <= 80


def test_the_reading_claims_nothing_about_a_healthy_program() -> None:
    assert reading([row("baseline", "survives"), row("clip", "survives")]) == [
        "the program is healthy as it is; the rows only compare"
    ]


def test_two_experiments_in_vain_prove_nothing() -> None:
    rows = [row("baseline", "dies"), row("float64", "dies"), row("clip", "dies")]
    assert reading(rows) == ["too few experiments were run to say what it is"]


def test_run_with_fix_reports_once_and_proves_a_change(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text(LOSSES)
    (tmp_path / "train.py").write_text(TRAIN)
    files = ("--json", "report.json", "--html", "report.html")
    done = whynan("run", "--fix", *files, "train.py", "200", cwd=tmp_path)
    assert done.returncode == 3  # harm was found, whatever is known about removing it
    assert done.stderr.count("error[N012]") == 1
    assert "not verified" not in done.stderr
    assert "`whynan fix --apply` writes this change" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80
    assert "= verified:" in done.stderr
    fixes = json.loads((tmp_path / "report.json").read_text())["anomalies"][0]["fixes"]
    assert (fixes[0]["kind"], fixes[0]["verdict"]) == ("log_softmax", "verified")
    assert "log_softmax" in fixes[0]["patch"]
    page = (tmp_path / "report.html").read_text()
    assert "✓ verified" in page
    assert (tmp_path / "losses.py").read_text() == LOSSES
