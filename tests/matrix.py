"""A sample of the tests under every torch and Python that whynan supports, one environment after the other.

    make matrix                          every combination, for hours
    make matrix TORCH=2.8 PYTHON=3.12    one of them
    make matrix TORCH=2.8 PYTHON=3.12 TESTS="tests/seam tests/record"    other tests than the sample

Each environment is made in a temporary folder as a user would make it, and is gone afterwards: the
registry's builds of torch take 5 to 7 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from whynan.seam.supported import NEWEST, OLDEST

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
# What touches torch most: its names, the recorder, the guard, the rewind, and whole programs.
SAMPLE = (
    "tests/seam",
    "tests/harm",
    "tests/record",
    "tests/watching",
    "tests/run/test_presence.py",
    "tests/cli/test_doctor.py",
    "tests/test_cases.py",
)
# Of the cases: once each. What breaks inside whynan is not a matter of versions.
NOT_IN_IT = "watching_gives_the_same_answer or (silence_on and trace) or a_fault_on_the_way"
TOOLS = (
    "accelerate",
    "hypothesis",
    "mpmath",
    "numpy",
    "psutil",
    "pytest",
    "pytest-xdist",
    "safetensors",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of one combination."""

    torch: str
    python: str
    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: int = 0
    minutes: float = 0.0
    trouble: str = ""

    @property
    def is_good(self) -> bool:
        return self.passed > 0 and not self.failed and not self.trouble

    def __str__(self) -> str:
        told = self.trouble or f"{self.passed} | {len(self.failed)} | {self.skipped}"
        return f"| {self.torch} | {self.python} | {told} | {self.minutes:.0f} |"


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--torch", default="", help="such as 2.8; several with commas")
    asked.add_argument("--python", default="", help="such as 3.12; several with commas")
    asked.add_argument("--tests", default=" ".join(SAMPLE), help="files and folders, with spaces")
    options = asked.parse_args()
    rows = []
    for torch in options.torch.split(",") if options.torch else releases():
        for python in options.python.split(",") if options.python else PYTHONS:
            print(f"torch {torch}, Python {python} ...", file=sys.stderr, flush=True)
            rows.append(combination(torch, python, options.tests.split()))
    print("| torch | Python | passed | failed | skipped | minutes |\n|---|---|---|---|---|---|")
    print(*rows, sep="\n")
    for row in rows:
        for name in row.failed:
            print(f"FAILED on {row.torch}, {row.python}: {name}")
    return 0 if all(row.is_good for row in rows) else 1


def releases() -> Iterator[str]:
    """Those that whynan does not refuse."""
    assert OLDEST[0] == NEWEST[0]
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        yield f"{OLDEST[0]}.{minor}"


def combination(torch: str, python: str, tests: list[str]) -> Row:
    """Set up, run, clean up."""
    interpreter = find_python(python)
    if interpreter is None:
        return Row(torch=torch, python=python, trouble="this Python is not on this machine")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"whynan-{torch}-{python}-") as folder:
        environment = Path(folder)
        try:
            versions = set_up(environment, interpreter, torch)
            passed, failed, skipped = run_tests(environment, tests)
        except subprocess.CalledProcessError as error:
            return Row(torch=torch, python=python, trouble=f"failed: {error.cmd[0]} {error.cmd[1]}")
        return Row(
            torch=versions[0], python=versions[1], passed=passed, failed=failed, skipped=skipped,
            minutes=(time.monotonic() - started) / 60,
        )  # fmt: skip


def find_python(version: str) -> str | None:
    """On the path, or where pyenv keeps them."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(kept.glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def set_up(environment: Path, interpreter: str, torch: str) -> list[str]:
    """Returns the versions that came of it."""
    subprocess.run([interpreter, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    # torch goes in first and alone, as a user has it.
    subprocess.run([*pip, f"torch=={torch}.*"], check=True)
    pinned = environment / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned.write_text("\n".join(line for line in lines if line.startswith(TOOLS)))
    subprocess.run([*pip, "-c", str(pinned), *TOOLS, str(ROOT)], check=True)
    asking = "import platform, torch; print(torch.__version__, platform.python_version())"
    told = subprocess.run(
        [environment / "bin" / "python", "-c", asking], check=True, capture_output=True, text=True
    )
    return told.stdout.split()


def run_tests(environment: Path, tests: list[str]) -> tuple[int, tuple[str, ...], int]:
    """How many passed, which failed, how many were left out."""
    results = environment / "results.xml"
    chosen = ["-k", f"not ({NOT_IN_IT})", *tests]
    subprocess.run(
        [environment / "bin" / "python", "-m", "pytest", "-n", "2", "-q", f"--junitxml={results}", *chosen],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr,
    )  # fmt: skip
    cases = list(ElementTree.parse(results).iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    skipped = sum(c.find("skipped") is not None for c in cases)
    names = tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed)
    return len(cases) - len(failed) - skipped, names, skipped


if __name__ == "__main__":
    sys.exit(main())
