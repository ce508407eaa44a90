"""Shells complete whynan's commands, options and the names of scripts, as the guide tells."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WORDS = [
    ("whynan ru", "plain,run"),
    ("whynan run --on-an", "plain,--on-anomaly"),
    ("whynan run --on-anomaly sk", "plain,skip"),
    ("whynan run tr", "file,tr"),
    ("whynan fix train.py da", "file,da"),
]


@pytest.mark.parametrize(("line", "answer"), WORDS)
def test_a_shell_is_told_what_may_follow(line: str, answer: str) -> None:
    asked = {"_WHYNAN_COMPLETE": "bash_complete", "COMP_WORDS": line}
    done = subprocess.run(
        [sys.executable, "-m", "whynan"], capture_output=True, text=True,
        env={**os.environ, **asked, "COMP_CWORD": str(line.count(" "))},
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == ([answer], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_of_the_guide_defines_it(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whynan"], capture_output=True, text=True,
        env={**os.environ, "_WHYNAN_COMPLETE": f"{shell}_source"},
    )  # fmt: skip
    assert "_whynan_completion" in done.stdout
