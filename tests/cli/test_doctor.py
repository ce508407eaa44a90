"""`whynan doctor`: whether the torch that is installed can be watched."""

from __future__ import annotations

from pathlib import Path

from tests.run.starting import run, write
from whynan.seam.support import table


def test_a_torch_that_can_be_watched(tmp_path: Path) -> None:
    done = run(cwd=tmp_path, command="doctor")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("whynan ")
    assert second == "this torch can be watched, on cpu"
    assert f"{len(table())} names from the inside of torch" in done.stdout


def test_every_name_is_shown_when_asked(tmp_path: Path) -> None:
    told = run("--names", cwd=tmp_path, command="doctor").stdout
    assert all(f"  {row.name}  since {row.since}, " in told for row in table())


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
