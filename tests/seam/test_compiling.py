"""The compiler of the program does not see whynan: nothing said about it, nothing compiled of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT

PROGRAM = Path(__file__).parent.parent / "programs" / "compiled_steps.py"
RUN = ("-m", "whynan", "run")


def done(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


def said(text: str) -> str:
    """Without times, processes and numbers of frames."""
    return re.sub(r"W\d+ [\d:.]+ \d+|\[\d+/\d+\]", "", text)


@pytest.fixture(scope="module")
def plain() -> subprocess.CompletedProcess[str]:
    return done(str(PROGRAM))


@pytest.mark.parametrize(
    "command", [(str(PROGRAM), "watched"), (*RUN, str(PROGRAM)), (*RUN, "--mode", "guard", str(PROGRAM))],
    ids=["watch", "run", "guard"],
)  # fmt: skip
def test_a_compiled_program_is_compiled_as_without_whynan(
    command: tuple[str, ...], plain: subprocess.CompletedProcess[str]
) -> None:
    watched = done(*command)
    assert watched.stdout == plain.stdout
    assert said(watched.stderr) == said(plain.stderr)
    assert watched.returncode == plain.returncode == 0
