"""Where commands write to: devices, links, full disks and folders that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from whynan.recording import Recording

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.ones(3))
    return tmp_path / "x.npy"


def whynan(*args: object, stdout: int | None = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whynan", *map(str, args)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)


def is_one_line(text: str) -> bool:
    return text.startswith("whynan: ") and text.count("\n") == 1


def test_json_of_a_check_follows_links_and_has_usual_rights(array: Path) -> None:
    target, link = array.parent / "target.json", array.parent / "link.json"
    target.touch()
    link.symlink_to(target)
    assert whynan("check", array, "--json", link).returncode == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["outcome"]
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


@needs_full
def test_json_of_a_check_is_written_into_a_device(array: Path) -> None:
    link = array.parent / "full"  # a link: should it be replaced, the machine keeps its device
    link.symlink_to(FULL)
    done = whynan("check", array, "--json", link)
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert link.is_symlink()


def test_a_missing_folder_is_one_line(array: Path) -> None:
    done = whynan("check", array, "--json", array.parent / "no" / "x.json")
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert "does not exist" in done.stderr


@needs_full
@pytest.mark.parametrize("command", ["check", "lint", "explain", "report"])
def test_an_output_that_is_full_is_one_line(command: str, array: Path) -> None:
    script, run = array.parent / "a.py", array.parent / "run.whynan"
    script.write_text("x = 1\n")
    Recording().save(run)
    arguments: dict[str, list[object]] = {
        "check": [array],
        "lint": ["--format", "json", script],
        "explain": ["--list"],
        "report": [run],
    }
    with FULL.open("w") as full:
        done = whynan(command, *arguments[command], stdout=full.fileno())
    assert is_one_line(done.stderr), done.stderr
    assert "No space left" in done.stderr
    assert done.returncode == 2


def test_a_reader_that_leaves_is_no_trouble() -> None:
    read, write = os.pipe()
    os.close(read)
    done = whynan("explain", "--list", stdout=write)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_recording_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = whynan("report", tmp_path / "nope")
    assert done.returncode == 2
    assert is_one_line(done.stderr)


def test_json_of_a_report_goes_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Recording().save(tmp_path / "run.whynan")
    done = whynan("report", "run.whynan", "--json", "-")
    assert json.loads(done.stdout)["schema"] == "whynan.report/1"
    assert not (tmp_path / "-").exists()
