"""Starts programs in processes of their own, where torch is not there yet."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(
    *args: str, cwd: Path, watched: bool = True, command: str = "run", **env: str
) -> subprocess.CompletedProcess[str]:
    """`PYTHONPATH` is put in front of what it is already."""
    paths = [env.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    whynan = ["-m", "whynan", command] if watched else []
    return subprocess.run(
        [sys.executable, *whynan, *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )
