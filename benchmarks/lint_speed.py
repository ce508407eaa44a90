"""Files per second of `whynan lint`, of ruff and of TorchFix on the same tree, and how long lint takes to start.

    python benchmarks/lint_speed.py [FOLDER]        default: the installed torch.optim and distributions

TorchFix is not a dependency: `pip install torchfix` to compare. Both run in one process, in turns;
processor seconds, medians of three.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPEATS = 3
PARTS = ("optim", "distributions")


def tree(folder: Path) -> int:
    """Copy the installed modules, so that both tools see plain files outside site-packages."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("torch is not installed: name a folder to lint")
    for part in PARTS:
        shutil.copytree(Path(found.origin).parent / part, folder / part)
    return count(folder)


def count(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.py"))


def seconds(command: list[str]) -> float:
    """Processor time, which a busy machine does not change much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        files = count(folder) if len(sys.argv) > 1 else tree(folder)
        empty = Path(temporary) / "empty.py"
        empty.write_text("import torch\nx = torch.zeros(1).log()\n")
        commands = {
            "whynan": [
                sys.executable,
                "-m",
                "whynan",
                "lint",
                "--jobs",
                "1",
                "--no-cache",
                str(folder),
            ]
        }
        if importlib.util.find_spec("ruff"):
            ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--isolated", str(folder)]
            commands |= {"ruff": ruff, "ruff ALL": [*ruff, "--select", "ALL"]}
            kept = str(Path(temporary) / "ruff")
            commands["ruff again"] = [sys.executable, "-m", "ruff", "check", "--isolated", "--cache-dir", kept, str(folder)]  # fmt: skip
        commands["whynan again"] = [
            sys.executable,
            "-m",
            "whynan",
            "lint",
            "--jobs",
            "1",
            str(folder),
        ]
        os.environ["XDG_CACHE_HOME"] = temporary
        if importlib.util.find_spec("torchfix"):
            commands["torchfix"] = [sys.executable, "-m", "torchfix", "--select=ALL", "--jobs", "1", str(folder)]  # fmt: skip
        commands["start"] = [sys.executable, "-m", "whynan", "lint", str(empty)]
        commands["python"] = [sys.executable, "-c", "pass"]
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(REPEATS):
            for name, command in commands.items():
                taken[name].append(seconds(command))
        medians = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{files} files, one process, processor time, medians of {REPEATS}")
    for name in ("whynan", "ruff", "ruff ALL", "torchfix", "whynan again", "ruff again"):
        if name in medians:
            print(f"{name:<12} {medians[name]:7.2f} s  {files / medians[name]:7.1f} files/s")
    if "torchfix" in medians:
        print(f"ratio      {medians['torchfix'] / medians['whynan']:7.1f} x")
    else:
        print("torchfix   not installed")
    print(f"start      {medians['start']:7.2f} s  (python alone: {medians['python']:.2f} s)")


if __name__ == "__main__":
    main()
