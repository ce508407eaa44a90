"""Makes a repro of a harm: written by a child process, run in another one, and kept if it fails there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whynan.codec import encode
from whynan.errors import UsageError
from whynan.model import Evidence
from whynan.repro.child import VARIABLE

FILES = ("repro.py", "README.md", "tensors.safetensors")
BUDGET_S = 10.0
START_S = 120.0  # importing torch, on a slow disk
NOT_FINITE = ("AssertionError: the result is not finite", "AssertionError: the gradient is not finite")  # fmt: skip
NO_OPERATION = {
    "entry": "the bad value came in with the data, no operation made it",
    "literal": "the program wrote that number itself, no operation made it",
    "number": "the number was bad before torch got it, no operation made it",
    "uninitialised": "it was read from memory that nobody had written: that differs from run to run",
    "unseen": "the operation that made it was not seen",
    "compiled": "only a compiled graph has it, no operation by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of it: `headline` of a repro that shows the failure, or why there is none."""

    headline: str = ""
    why: str = ""
    lines: int = 0
    size: int = 0  # bytes of all files
    kept: int = 0  # tensors with values of the program's own
    facts: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.headline)


def check_folder(folder: Path) -> None:
    """Nothing of the user's is written over."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: there is a file of that name")
    others = sorted(p.name for p in folder.iterdir() if p.name not in FILES) if folder.exists() else []  # fmt: skip
    if others:
        raise UsageError(f"{folder} holds other files ({others[0]}); name an empty or a new folder")


def make(
    evidence: Evidence, folder: Path, *, keep_values: bool = False, budget_s: float = BUDGET_S
) -> Made:
    """Write the folder if there is a repro; leave it alone if not."""
    if not evidence.materials:
        return Made(why=_why_not(evidence))
    with tempfile.TemporaryDirectory(prefix="whynan-") as place:
        draft = Path(place) / "repro"
        draft.mkdir()
        answer = _draft(evidence, draft, Path(place), keep_values, budget_s)
        if "why" in answer:
            return Made(why=answer["why"])
        why = _seen_failing(draft, answer)
        if why:
            return Made(why=why)
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
            if (draft / name).exists():
                shutil.copyfile(draft / name, folder / name)
    size = sum((folder / name).stat().st_size for name in FILES if (folder / name).exists())
    return Made(
        headline=answer["headline"],
        lines=answer["lines"],
        size=size,
        kept=answer["kept"],
        facts=answer,
    )


def _why_not(evidence: Evidence) -> str:
    if evidence.origin.op.startswith("numpy"):
        return "NumPy made it, not torch"
    return NO_OPERATION.get(evidence.origin_kind, "the operands were no longer in memory")


def _draft(
    evidence: Evidence, draft: Path, place: Path, keep_values: bool, budget_s: float
) -> dict[str, Any]:
    task, answer = place / "task.json", place / "answer.json"
    asked = {
        "materials": encode(evidence.materials),
        "folder": str(draft),
        "answer": str(answer),
        "keep_values": keep_values,
        "budget_s": budget_s,
    }
    task.write_text(json.dumps(asked), encoding="utf-8")
    run = [sys.executable, "-m", "whynan.repro.child"]
    code, errors = _run(run, START_S + 3 * budget_s, {VARIABLE: str(task)})
    if not answer.exists():
        return {"why": f"the process that was to write it ended with code {code}{errors}"}
    return dict(json.loads(answer.read_text(encoding="utf-8")))


def _seen_failing(draft: Path, answer: dict[str, Any]) -> str:
    """Run it as anybody would; why it is no repro, or nothing."""
    code, errors = _run([sys.executable, str(draft / "repro.py")], START_S, {})
    last = errors.removeprefix(": ")
    if answer["kind"] == "raised":
        shows = code == 1 and last.split(":")[0].endswith(answer["message"].split(":")[0])
    else:
        shows = code == 1 and last in NOT_FINITE
    if shows:
        return ""
    return f"in a fresh process it does not fail: the script ended with code {code}{errors}"


def _run(command: list[str], limit_s: float, more: dict[str, str]) -> tuple[int, str]:
    """The exit code, and the last line of its errors."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WHYNAN_")} | more
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f": more than {limit_s:.0f} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return done.returncode, f": {lines[-1].strip()}" if lines else ""
