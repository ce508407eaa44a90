"""The fresh process of a trial, or of one of its ranks: with the changes in place, it runs the program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whynan.run.minder import note_pid
from whynan.trying.overlay import begin


def main(path: str, *command: str) -> int:
    """Run the trial that is described there: its program, or the command line of a rank that the
    program starts as a program of its own."""
    description = json.loads(Path(path).read_text(encoding="utf-8"))
    tell = begin(description)
    if command:
        note_pid(os.path.dirname(path))  # a launcher gives its ranks sessions of their own
    from whynan.run.outputs import RunOptions
    from whynan.run.run import Run

    options = RunOptions(
        mode=description["mode"],
        recording=Path(description["result"]),
        save_batch=Path(description["save_batch"]) if description["save_batch"] else None,
        max_steps=description["max_steps"],
        enough=description["enough"],
        finite_from=description["finite_from"],
        is_shown=False,
        speaker=description["rank"] or 0,
        rank_command=("-m", "whynan.trying.child", path),
    )
    with _telling(tell):
        return Run(_program(description, command), options).go().code


def _program(description: dict[str, Any], command: tuple[str, ...]) -> Any:
    from whynan.run.program import Program

    if command[:1] == ("-m",):
        return Program(target=command[1], args=command[2:], is_module=True)
    if command:
        return Program(target=command[0], args=command[1:])
    return Program(
        target=description["target"],
        args=tuple(description["args"]),
        is_module=description["is_module"],
    )


@contextmanager
def _telling(tell: Callable[[], None]) -> Iterator[None]:
    """At the end of the program, also where `os._exit` is the end, as it is for a forked rank."""
    original = os._exit

    def leave(code: int) -> None:
        tell()
        original(code)

    os._exit = leave  # type: ignore[assignment]  # never returns
    try:
        yield
    finally:
        os._exit = original
        tell()


if __name__ == "__main__":
    # The program must find the modules it would find under plain Python.
    sys.exit(main(*sys.argv[1:]))
