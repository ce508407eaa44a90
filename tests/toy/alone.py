"""A test in a process of its own: torch makes the threads of its devices at the first backward pass of a
process, and a device that is registered later has none."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness import ROOT, ForkServer


def alone(test: Callable[[], None]) -> Callable[[ForkServer], None]:
    """The test, with the toy accelerator there, in a fork of a process that has computed nothing yet."""

    @functools.wraps(test)
    def run(programs: ForkServer) -> None:
        result = programs.run(Path(__file__), test.__module__, test.__qualname__, traced=False)
        assert result.code == 0, result.stderr

    inside: Any = run
    inside.test = test
    inside.__signature__ = inspect.signature(run, follow_wrapped=False)
    return run


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.toy import toy

    toy.load()
    module = importlib.import_module(sys.argv[1])
    getattr(module, sys.argv[2]).test()


if __name__ == "__main__":
    main()
