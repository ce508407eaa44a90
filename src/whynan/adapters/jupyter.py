"""`%load_ext whynan` and `%%whynan`: a traced cell with its report underneath."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from whynan.diagnosis.engine import diagnose
from whynan.errors import StopRun, UsageError
from whynan.model import Diagnosis
from whynan.recording import Recording
from whynan.repair.first import FirstChanges
from whynan.run.blocks import traced
from whynan.source.quotes import quoted

FIRST = "# %%whynan"  # what a traced cell is compiled with instead of its magic


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext whynan`."""

    def magic(line: str, cell: str) -> Diagnosis:
        """Run a cell under the tracer: `%%whynan [stop|warn]`."""
        return run_cell(shell, line, cell)

    shell.register_magic_function(magic, magic_kind="cell", magic_name="whynan")


def run_cell(shell: Any, line: str, cell: str) -> Diagnosis:
    """Trace a cell; the diagnosis is its result, which the notebook draws."""
    policy = line.strip() or "stop"
    if policy not in ("stop", "warn"):
        raise UsageError(f"%%whynan {policy}: expected `stop`, `warn` or nothing")
    run = _compile(shell, cell)
    block = traced(stops=policy == "stop")
    from whynan.watching.optimizers import optimizers_so_far

    block.start(optimizers=optimizers_so_far())
    error: BaseException | None = None
    try:
        run()
        block.left_behind(shell.user_ns)
    except BaseException as raised:
        error = raised
    try:
        block.stop(error)
    except StopRun:
        pass
    recording = _with_cell_names(FirstChanges().beside(block.recording()))
    result = diagnose(recording, script="notebook cell")
    if error is not None and not isinstance(error, StopRun):
        if result:
            _display(result)
        raise error
    return result


def _compile(shell: Any, cell: str) -> Callable[[], None]:
    """The cell under its own line numbers: the magic's line stays counted."""
    nested = cell.lstrip().startswith("%%")  # only a first line is a cell magic
    source = shell.transform_cell(cell if nested else f"{FIRST}\n{cell}")
    number = len(shell.history_manager.input_hist_parsed) - 1  # as in `In[number]`
    name = shell.compile.cache(source, number, raw_code=source)
    tree = shell.compile.ast_parse(source, filename=name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = shell.compile(tree, name, "exec")
    value = shell.compile(ast.Expression(last.value), name, "eval") if last else None

    def run() -> None:
        exec(body, shell.user_ns)
        result = eval(value, shell.user_ns) if value is not None else None
        if result is not None:
            _display(result)

    return run


def _display(value: object) -> None:
    from IPython.display import display

    display(value)  # type: ignore[no-untyped-call]  # IPython


def _with_cell_names(recording: Recording) -> Recording:
    """`In[3]` instead of the temporary file that IPython compiles a cell under."""

    def as_typed(lines: Mapping[int, str]) -> dict[int, str]:
        return {**lines, **({1: "%%whynan"} if lines.get(1) == FIRST else {})}

    found = map(quoted, recording.evidence)
    typed = [replace(e, quotes={f: as_typed(q) for f, q in e.quotes.items()}) for e in found]
    return replace(recording, evidence=tuple(typed))
