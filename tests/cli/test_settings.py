"""Settings in pyproject.toml, hints for options in the wrong place, and `--open`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BAD = "import torch\nprint(torch.log(torch.zeros(2)))\n"
PICKY = "import argparse\nargparse.ArgumentParser().parse_args()\n"


def whynan(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "picky.py").write_text(PICKY)
    settings = '[tool.whynan.run]\nhtml = "set.html"\nmode = "trace"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    return tmp_path


def test_settings_give_way_to_the_environment_and_that_to_options(folder: Path) -> None:
    done = whynan("run", "--mode", "auto", "bad.py", cwd=folder, WHYNAN_HTML="env.html")
    assert done.returncode == 3
    assert (folder / "env.html").exists()
    assert not (folder / "set.html").exists()
    assert "whynan: wrote env.html\n" in done.stderr


def test_a_page_is_opened_where_it_was_written(folder: Path) -> None:
    done = whynan("run", "--open", "bad.py", cwd=folder, BROWSER="echo shown %s")
    assert f"shown {(folder / 'set.html').as_uri()}" in done.stdout


def test_a_setting_that_is_not_known_is_named(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.whynan.run]\nhtlm = "x.html"\n')
    done = whynan("run", "bad.py", cwd=folder)
    assert done.returncode == 2
    assert "[tool.whynan.run]: `htlm` is not known; did you mean html?" in done.stderr


def test_a_mistyped_option_is_not_taken_for_the_script(folder: Path) -> None:
    done = whynan("run", "--htlm", "x.html", "bad.py", cwd=folder)
    assert done.returncode == 2
    assert "no such option: --htlm; did you mean --html?" in done.stderr


def test_an_option_behind_the_script_gets_a_hint(folder: Path) -> None:
    done = whynan("run", "picky.py", "--html", "x.html", cwd=folder)
    assert done.returncode == 2
    assert "--html stands after the script, so the script got it" in done.stderr
