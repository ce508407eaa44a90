"""Runs a program with the toy accelerator as its default device: `python -m tests.toy.script PROGRAM ...`.

With `--whynan` first, `whynan run` runs it; the options of that command follow, then the program.
"""

from __future__ import annotations

import runpy
import sys

import torch

from tests.toy import toy


def main() -> None:
    toy.load()
    torch.set_default_device("toy")
    if sys.argv[1] == "--whynan":
        from whynan.cli import commands

        commands(["run", *sys.argv[2:]])
        return
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
