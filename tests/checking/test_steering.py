"""Names in checked files and source lines that are linted cannot steer the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

EVIL = "\x1b[8m\x07\u202e"


def whynan(*args: object) -> str:
    command = [sys.executable, "-m", "whynan", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_names_in_a_checked_file_are_shown_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(f"owned{EVIL},b\nnan,1\n2,3\n", encoding="utf-8")
    np.savez(tmp_path / "bad.npz", **{f"owned{EVIL}": np.array([np.nan])})  # type: ignore[arg-type]
    for name in ("bad.csv", "bad.npz"):
        text = whynan("check", "-v", tmp_path / name)
        assert "owned" in text
        assert not (set(EVIL) - set("[8m")) & set(text)


def test_a_source_line_is_linted_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        f"import torch\ny = torch.log(torch.softmax(x, -1))  # owned{EVIL}\n", encoding="utf-8"
    )
    text = whynan("lint", tmp_path / "a.py")
    assert "owned" in text
    assert not (set(EVIL) - set("[8m")) & set(text)
