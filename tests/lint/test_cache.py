"""What was found is kept by content, outside of the tree, and is never told of another content."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from whynan.lint.cache import KEPT_DAYS, folder, prune
from whynan.lint.runner import FileResult, Runner, Task
from whynan.lint.selection import Config

BAD = "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
GOOD = "import torch\n\n\ndef f(x):\n    return torch.log_softmax(x, dim=-1)\n"


def look(path: Path, cache: Path, *, ignore: tuple[str, ...] = ()) -> FileResult:
    config = Config(root=path.parent)
    task = Task(select=(), ignore=ignore, config=config, cache=str(cache))
    return Runner(task).file(str(path))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path / "code" / "train.py"


def test_a_second_look_tells_the_same(program: Path, tmp_path: Path) -> None:
    program.write_text(BAD)
    first = look(program, tmp_path / "cache")
    assert [f.slug for f in first.findings] == ["log-softmax"]
    assert look(program, tmp_path / "cache") == first
    assert first.findings[0].replacement is not None
    assert os.listdir(program.parent) == ["train.py"]


def test_another_content_or_choice_is_looked_at_again(program: Path, tmp_path: Path) -> None:
    program.write_text(BAD)
    assert look(program, tmp_path / "cache").findings
    assert not look(program, tmp_path / "cache", ignore=("log-softmax",)).findings
    program.write_text(GOOD)
    assert not look(program, tmp_path / "cache").findings
    program.write_text(BAD)
    assert look(program, tmp_path / "cache").findings


def test_the_same_content_elsewhere_is_told_with_its_own_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "train.py").write_text(BAD)
    paths = [tmp_path / name / "src" / "train.py" for name in ("one", "two")]
    told = [look(path, tmp_path / "cache").findings[0].path for path in paths]
    assert told == [str(path) for path in paths]
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1


@pytest.mark.parametrize("content", ["", "{", "[1]", json.dumps([{"line": 3}])])
def test_a_spoilt_entry_is_made_again(program: Path, tmp_path: Path, content: str) -> None:
    program.write_text(BAD)
    first = look(program, tmp_path / "cache")
    (entry,) = (tmp_path / "cache").rglob("*.json")
    entry.write_text(content)
    assert look(program, tmp_path / "cache") == first
    assert entry.read_text() != content


def test_a_folder_that_cannot_be_written_is_done_without(program: Path, tmp_path: Path) -> None:
    program.write_text(BAD)
    (tmp_path / "cache").write_text("a file in its place")
    assert look(program, tmp_path / "cache").findings
    prune(str(tmp_path / "cache"))


def test_the_folder_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == str(tmp_path / "whynan" / "lint")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == str(tmp_path / ".cache" / "whynan" / "lint")


def test_old_entries_are_forgotten(program: Path, tmp_path: Path) -> None:
    program.write_text(BAD)
    look(program, tmp_path / "cache")
    (entry,) = (tmp_path / "cache").rglob("*.json")
    prune(str(tmp_path / "cache"))
    assert entry.exists()
    long_ago = entry.stat().st_mtime - (KEPT_DAYS + 1) * 86400
    os.utime(entry, (long_ago, long_ago))
    (tmp_path / "cache" / "pruned").unlink()
    prune(str(tmp_path / "cache"))
    assert not entry.exists()
