"""Writing a change: all files or none, never over a later edit, and it can be undone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from whynan.errors import UsageError
from whynan.model import Fix
from whynan.repair import patches
from whynan.repair.originals import Originals
from whynan.report import remedy


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.chdir(tmp_path)
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_bytes(b"x = 1\r\ny = 2\r\n")
    second.write_text("z = 3")
    return first, second


def test_apply_writes_every_file_and_keeps_line_endings_and_mode(
    two_files: tuple[Path, Path],
) -> None:
    first, second = two_files
    second.chmod(0o755)
    originals = Originals(str(first.parent))
    patches.apply(originals, {str(first): "x = 1\r\ny = 5\r\n", str(second): "z = 4"})
    assert first.read_bytes() == b"x = 1\r\ny = 5\r\n"
    assert second.read_text() == "z = 4"
    assert os.access(second, os.X_OK)
    assert sorted(p.name for p in first.parent.iterdir()) == ["a.py", "b.py"]


def test_apply_refuses_when_one_file_changed_meanwhile(two_files: tuple[Path, Path]) -> None:
    first, second = two_files
    originals = Originals(str(first.parent))
    second.write_text("z = 'edited meanwhile'")
    with pytest.raises(UsageError, match=r"b\.py changed since it was run; nothing was written"):
        patches.apply(originals, {str(first): "x = 9\n", str(second): "z = 4"})
    assert first.read_bytes() == b"x = 1\r\ny = 2\r\n"
    assert second.read_text() == "z = 'edited meanwhile'"


def test_apply_refuses_a_read_only_file(two_files: tuple[Path, Path]) -> None:
    first, second = two_files
    originals = Originals(str(first.parent))
    second.chmod(0o444)
    with pytest.raises(UsageError, match=r"^b\.py is read-only; nothing was written$"):
        patches.apply(originals, {str(first): "x = 9\n", str(second): "z = 4"})
    assert first.read_bytes() == b"x = 1\r\ny = 2\r\n"
    assert second.read_text() == "z = 3"


def test_a_file_read_late_must_be_older_than_the_run(two_files: tuple[Path, Path]) -> None:
    """Beyond the limits, or outside of the program's folder, it is read when it is asked for."""
    first, second = two_files
    originals = Originals()
    os.utime(first, (1, 1))
    os.utime(second, (2**32, 2**32))  # edited while the program ran
    patches.apply(originals, {str(first): "x = 3\r\n"})
    assert first.read_bytes() == b"x = 3\r\n"
    with pytest.raises(UsageError, match=r"b\.py changed since it was run"):
        patches.apply(originals, {str(second): "z = 4"})


@pytest.mark.parametrize(
    "raw",
    [
        "\ufeffimport torch\nname = 'Bj\u00f6rn'\nx = 1\n".encode(),
        "# -*- coding: latin-1 -*-\nname = 'Bj\u00f6rn'\nx = 1\n".encode("latin-1"),
        b"a = 1\x0c\nx = 1\r\n",
    ],
)
def test_a_file_keeps_its_encoding_and_the_patch_is_in_it(
    two_files: tuple[Path, Path], raw: bytes
) -> None:
    _, second = two_files
    second.write_bytes(raw)
    originals = Originals(str(second.parent))
    text = originals.text(str(second))
    assert text is not None
    assert not text.startswith("\ufeff")
    changed = {str(second): text.replace("x = 1", "x = 2")}
    patches.apply(originals, changed)
    assert second.read_bytes() == raw.replace(b"x = 1", b"x = 2")
    diff = patches.unified_bytes(originals, changed)
    assert patches.unified(originals, changed).count("\n+") == 2  # `+++` and one line
    subprocess.run(["git", "apply", "-R", "-p1", "-"], input=diff, check=True)
    assert second.read_bytes() == raw


def test_the_patch_can_be_undone_with_patch(two_files: tuple[Path, Path]) -> None:
    _, second = two_files
    second.write_text("z = 3\nq = 4\n")
    originals = Originals(str(second.parent))
    changed = {str(second): "z = 3\nq = 5\n"}
    diff = patches.unified(originals, changed)
    patches.apply(originals, changed)
    subprocess.run(["git", "apply", "-R", "-p1", "-"], input=diff.encode(), check=True)
    assert second.read_text() == "z = 3\nq = 4\n"


def test_a_remedy_shows_numbered_lines_and_the_proof(two_files: tuple[Path, Path]) -> None:
    _, second = two_files
    second.write_text("a = 0\nb = 1\nc = 2\n")
    originals = Originals(str(second.parent))
    diff = patches.unified(originals, {str(second): "a = 0\nb = 9\nc = 2\n"})
    fix = Fix(kind="k", title="use nine", patch=diff, verdict="verified", evidence="3 steps run")
    other = Fix(kind="o", title="use ten", verdict="failed", evidence="it is still there")
    lines = [line.plain for line in remedy.draw([fix, other], "b.py")]
    assert lines == [
        "help: use nine",
        "2 - b = 1",
        "2 + b = 9",
        "   = verified: 3 steps run",
        "   = tried, failed: use ten: it is still there",
    ]
    waiting = [
        Fix(kind="w", title=t, patch="p", verdict="not_tried", evidence="not tried: no time")
        for t in ("one; two", "three")
    ]
    others = [line.plain for line in remedy.draw([fix, *waiting], "b.py")][4:]
    assert others == ["   = others, not tried: no time:", "      - one; two", "      - three"]
    elsewhere = [line.plain for line in remedy.draw([fix], "a.py")]
    assert elsewhere[1] == " --> b.py"
