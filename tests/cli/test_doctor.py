"""`whynan doctor`: whether whynan works here."""

from __future__ import annotations

import json
from pathlib import Path

from tests.run.starting import run, write
from whynan.doctor.selftest import check_up
from whynan.doctor.wording import closing
from whynan.seam.support import table


def test_what_there_is_is_said(tmp_path: Path) -> None:
    done = run("--quick", cwd=tmp_path, command="doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("whynan ")
    assert " · torch 2." in done.stdout
    assert "\ncpu: " in done.stdout
    assert f"this torch can be watched: {len(table())} names from its inside" in done.stdout
    assert "self-test" not in done.stdout


def test_every_name_is_shown_when_asked(tmp_path: Path) -> None:
    told = run("--quick", "--names", cwd=tmp_path, command="doctor").stdout
    assert all(f"  {row.name}  since {row.since}, " in told for row in table())


def test_the_self_test_finds_the_faults_and_leaves_a_healthy_training_alone(tmp_path: Path) -> None:
    done = run("--json", "doctor.json", cwd=tmp_path, command="doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("  ok     ") == 5
    assert "backward fault   found: line 16, backward, gradient_singularity, step 25" in done.stdout
    assert "the same weights to the last bit" in done.stdout
    assert "ms guarded (x " in done.stdout
    assert done.stdout.endswith("\nwhynan works here, on cpu\n")
    made = json.loads((tmp_path / "doctor.json").read_text())
    assert made["schema"] == "whynan.doctor/1"
    assert made["ok"] is True
    assert len(made["names"]) == len(table())
    (checkup,) = made["checkups"]
    assert checkup["cost"]["guarded_ms"] > 0


def test_a_device_that_does_not_work_fails_with_its_own_words(tmp_path: Path) -> None:
    checkup = check_up("hpu", tmp_path)  # no such device in any build that the tests run on
    assert not checkup.is_well
    assert all("exit code 1" in check.seen for check in checkup.checks)
    assert any("hpu" in check.seen.lower() for check in checkup.checks)
    assert checkup.cost is None
    assert "5 of the checks failed" in closing([checkup])


def test_an_old_torch_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '__version__ = "2.3.1"\n', "torch.py")
    done = run(cwd=tmp_path, command="doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "torch 2.3.1 cannot be watched" in done.stderr
    assert done.stdout == ""


def test_a_missing_torch_is_said(tmp_path: Path) -> None:
    write(tmp_path, 'raise ModuleNotFoundError("none", name="torch")\n', "torch.py")
    done = run(cwd=tmp_path, command="doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "PyTorch is not installed here" in done.stderr
