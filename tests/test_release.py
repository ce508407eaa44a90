"""What is released can be installed where nothing else is, and does there what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from whynan.version import __version__


def done(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Warnings of pip and of the build are not whynan's; of its own, pytest has made errors elsewhere.
    bare = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONWARNINGS")}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=bare, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


def built(source: Path, out: Path, *targets: str) -> Path:
    made = done(sys.executable, "-m", "hatchling", "build", "-d", out, *targets, folder=source)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("dist"))


def test_wheel_and_sdist_pass_twine(release: Path) -> None:
    files = sorted(release.iterdir())
    assert [f.suffix for f in files] == [".whl", ".gz"]
    checked = done(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


def test_the_sdist_makes_the_same_wheel(release: Path, tmp_path: Path) -> None:
    with tarfile.open(next(release.glob("*.tar.gz"))) as packed:
        packed.extractall(tmp_path, filter="data")
    again = built(tmp_path / f"whynan-{__version__}", tmp_path / "dist", "-t", "wheel")
    assert names(next(again.glob("*.whl"))) == names(next(release.glob("*.whl")))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        return sorted(packed.namelist())


def test_the_wheel_works_in_an_empty_environment(release: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    wheel = next(release.glob("*.whl"))
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    installed = done(*pip, "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    whynan = python.with_name("whynan")
    assert done(whynan, "--version", folder=tmp_path).stdout == f"whynan, version {__version__}\n"
    (tmp_path / "loss.py").write_text("import torch\n\ny = torch.log(torch.softmax(x, -1))\n")
    linted = done(whynan, "lint", "loss.py", folder=tmp_path)
    assert (linted.returncode, linted.stderr) == (1, "")
    assert "log_softmax" in linted.stdout
    run = done(whynan, "run", "loss.py", folder=tmp_path)
    assert run.returncode == 2
    assert "whynan: PyTorch is not installed here" in run.stderr
