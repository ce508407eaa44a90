"""The fresh process of a trial: lays changed sources over the files, then runs the program.

The user's files stay as they are: importing and running a changed file reads its new text from
the trial's description instead.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from whynan.repair.originals import encoded

VARIABLE = "WHYNAN_TRIAL"


def lay_over(texts: Mapping[str, str]) -> None:
    """From now on these files have these texts, for the script, for imports and for reports."""
    if not texts:
        return
    sources = {os.path.realpath(path): text for path, text in texts.items()}
    loaders: Any = SourceFileLoader
    original_open, original_code = io.open_code, SourceFileLoader.get_code

    def open_code(path: str) -> Any:
        text = sources.get(os.path.realpath(path))
        if text is None:
            return original_open(path)
        _quote(os.path.abspath(path), text)  # the name that a script's code has
        return io.BytesIO(encoded(text))

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        text = sources.get(os.path.realpath(path))
        if text is None:
            return original_code(loader, fullname)
        _quote(path, text)
        code: CodeType = loader.source_to_code(encoded(text), path)  # past the bytecode cache
        return code

    io.open_code = open_code
    loaders.get_code = get_code


def _quote(path: str, text: str) -> None:
    # An entry without a modification time is never looked up on disk again.
    linecache.cache[path] = (len(text), None, list(io.StringIO(text, newline=None)), path)


def main() -> int:
    """Run the trial that the environment describes."""
    description = json.loads(Path(os.environ.pop(VARIABLE)).read_text(encoding="utf-8"))
    lay_over(description["texts"])
    applied = _intervene(description["intervention"])
    if description["drop"]:
        from whynan.repair.leaving_out import leave_out

        leave_out(**description["drop"])
    from whynan.run.outputs import RunOptions
    from whynan.run.program import Program
    from whynan.run.run import Run

    program = Program(
        target=description["target"],
        args=tuple(description["args"]),
        is_module=description["is_module"],
    )
    options = RunOptions(
        mode=description["mode"],
        recording=Path(description["result"]),
        save_batch=Path(description["save_batch"]) if description["save_batch"] else None,
        max_steps=description["max_steps"],
        enough=description["enough"],
        finite_from=description["finite_from"],
        is_shown=False,
        children=False,  # the changed texts are laid over this process only
    )
    with _telling(applied, Path(description["applied"])):
        return Run(program, options).go().code


def _intervene(name: str | None) -> Callable[[], int | None]:
    """Start the experiment; the result tells how often it had something to change."""
    if name is None:
        return lambda: None
    from whynan.repair.interventions import Intervention

    intervention = Intervention()
    intervention.start(name)
    return lambda: intervention.applied


@contextmanager
def _telling(applied: Callable[[], int | None], path: Path) -> Iterator[None]:
    """Write it down at the end of the program, also where `os._exit` is the end."""
    original, pid = os._exit, os.getpid()

    def write() -> None:
        path.write_text(json.dumps(applied()), encoding="utf-8")

    def leave(code: int) -> None:
        if os.getpid() == pid:  # not a worker
            write()
        original(code)

    os._exit = leave  # type: ignore[assignment]  # never returns
    try:
        yield
    finally:
        os._exit = original
        write()


if __name__ == "__main__":
    # The program must find the modules it would find under plain Python.
    sys.exit(main())
