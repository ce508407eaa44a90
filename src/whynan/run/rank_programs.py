"""Ranks that are programs of their own, as Lightning and torchrun start them: the same, under watch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whynan.ranks import is_of_a_job
from whynan.run.outputs import RunOptions
from whynan.seam.patches import Patches

STARTER = "WHYNAN_STARTER"  # in a rank's environment: the folder for word to who started it
IS_RANK = "rank"  # a word to it: its starter is a rank of the job as well
FAREWELL_S = 20.0
WITH_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python's own
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class RankPrograms:
    """Sees each program that this one starts; `folder` is for word from those that are ranks."""

    def __init__(self, options: RunOptions, folder: Callable[[], Path]) -> None:
        self._options, self._folder = options, folder

    def install(self, patches: Patches) -> None:
        patches.wrap(subprocess.Popen, "__init__", self._wrap)

    def _wrap(self, original: Callable[..., None]) -> Callable[..., None]:
        def start(process: Any, args: Any, *more: Any, **options: Any) -> None:
            given = options.get("env")
            env = os.environ if given is None else given
            command = None if more or options.get("shell") else self._command(args, env)
            if command is not None:
                folder = self._folder()
                if is_of_a_job(os.environ):
                    (folder / IS_RANK).touch()
                args, options["env"] = command, {**env, STARTER: str(folder)}
            original(process, args, *more, **options)

        return start

    def _command(self, args: Any, env: Mapping[str, str]) -> list[str] | None:
        if isinstance(args, (str, bytes, os.PathLike)) or not is_of_a_job(env):
            return None
        if all(env.get(name) == os.environ.get(name) for name in RANKS):
            return None  # an errand of this rank's
        return watched(list(args), self._options.for_ranks())


def watched(command: Sequence[Any], how: Sequence[str]) -> list[str] | None:
    """The same program of Python's under whynan; None if it is another one, or watched already."""
    if not command or not all(isinstance(part, str) for part in command):
        return None
    if os.path.realpath(command[0]) != os.path.realpath(sys.executable):
        return None
    at = 1
    while (
        at < len(command) and command[at].startswith("-") and command[at] not in ("-", "-c", "-m")
    ):
        at += 2 if command[at] in WITH_A_VALUE else 1
    what = list(command[at:])
    if not what or what[0] in ("-", "-c") or what[:2] == ["-m", "whynan"]:
        return None
    if os.path.basename(what[0]) == "whynan":
        return None
    return [*command[:at], *how, *what]


def starter_of_this() -> Path | None:
    """Where this rank leaves word for the program that started it; what this one starts is its own."""
    folder = os.environ.pop(STARTER, None)
    return Path(folder) if folder else None


def let_go_first(folder: Path) -> None:
    """Lightning's launcher kills its own process, the first rank, when another one leaves with a code.
    That one has the report to write and the exit code to give: wait for its end."""
    end, parent = time.monotonic() + FAREWELL_S, os.getppid()
    if (folder / IS_RANK).exists():
        while os.getppid() == parent and time.monotonic() < end:
            time.sleep(0.02)
