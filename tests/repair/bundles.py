"""Programs of several files written as one text: `--- name` begins a file, the first is train.py."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

LOOP = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def unpacked(folder: Path, text: str) -> Path:
    """Write the files; the program to run. `LOOP` in a line of its own is the end of a step."""
    name, files = "train.py", dict[str, list[str]]()
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith("--- "):
            name = line.removeprefix("--- ").strip()
        elif line.strip() == "LOOP":
            files.setdefault(name, []).extend(LOOP.strip("\n").splitlines())
        else:
            files.setdefault(name, []).append(line)
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines).strip("\n") + "\n")
    return folder / "train.py"


def verified(found: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The kind of the change that was verified, and the lines that it adds."""
    for fix in found["fixes"]:
        if fix["verdict"] == "verified" and fix["patch"]:
            lines = fix["patch"].splitlines()
            return fix["kind"], [x[1:] for x in lines if x[:1] == "+" and x[:3] != "+++"]
    return None, []


def advice(found: dict[str, Any]) -> str:
    return " ".join(f["title"] for f in found["fixes"] if f["kind"] == "advice")
