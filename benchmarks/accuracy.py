"""How often the right origin is named: whynan, torch's anomaly mode and, if there, sherlorch.

python benchmarks/accuracy.py [--write]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
import torch._dynamo  # each child would load it again, in seconds, for its first optimizer
from rich.console import Console
from rich.table import Table
from torch.overrides import TorchFunctionMode

from tests.harness import run_forked

DOC = ROOT / "docs" / "accuracy.md"
BY_HAND = "## Programs on public libraries"  # from there on the page is not written here
CASES = ROOT / "tests" / "cases"
HEALTHY = ROOT / "tests" / "healthy"
PHASES = ("forward", "backward", "optimizer", "data", "init")
FORWARD_CALL = re.compile(r"forward call that caused the error:\n(.*?)\(Triggered internally", re.S)
FRAME = re.compile(r'^  File "(.+)", line (\d+)', re.M)
CULPRIT = re.compile(r"^sherlorch names (.+):(\d+)$", re.M)
READS = {"backward", "item", "tolist", "numpy", "__float__", "__format__", "__repr__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Where a tool (or `expected.json`) puts the origin; what it leaves open is empty."""

    spoke: bool = True
    file: str = ""
    line: int = 0
    phase: str = ""
    mechanism: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "no line"


SILENCE = Answer(spoke=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that says where a program went wrong, and what it undertakes to say."""

    name: str
    ask: Callable[[Path], Answer]
    tells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What every tool said about one program; `expected` is None for a healthy one."""

    name: str
    expected: Answer | None
    answers: dict[str, Answer]


def place_in(script: Path, frames: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """The innermost frame that lies in the program's own folder."""
    folder = script.parent
    for file, line in reversed(list(frames)):
        path = folder / file
        if path.is_file() and path.is_relative_to(folder):
            return path.relative_to(folder).as_posix(), int(line)
    return "", 0


def ask_whynan(script: Path) -> Answer:
    report = run_forked(script).report
    if not report or not report["anomalies"]:
        return SILENCE
    first = report["anomalies"][0]
    place = first["location"] or {"file": "", "line": 0}
    return Answer(
        file=place["file"],
        line=place["line"],
        phase=first["phase"],
        mechanism=first["mechanism"],
    )


def ask_anomaly_mode(script: Path) -> Answer:
    with torch.autograd.set_detect_anomaly(True):  # a flag of the process, so the fork keeps it
        stderr = run_forked(script, traced=False).stderr
    if "returned nan values" not in stderr:
        return SILENCE
    call = FORWARD_CALL.search(stderr)
    file, line = place_in(script, FRAME.findall(call[1]) if call else [])
    return Answer(file=file, line=line, phase="backward")


class Reader(TorchFunctionMode):
    """Asks sherlorch about the first bad tensor that a program reads, then ends the program."""

    def __init__(self, tracker: Any) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in READS and isinstance(args[0], torch.Tensor):
            self.question(args[0])
        return func(*args, **(kwargs or {}))

    def question(self, tensor: torch.Tensor) -> None:
        if not self.tracker.has_issue(tensor):
            return
        try:
            culprits = self.tracker.diagnose(tensor).culprits
        except KeyError:  # made where sherlorch does not look, a gradient for instance
            return
        if culprits:
            print(f"sherlorch names {culprits[0].location or 'nowhere:0'}", file=sys.stderr)
            raise SystemExit(3)


def light_stack() -> list[SimpleNamespace]:
    """`inspect.stack()` without the source text, which nobody reads and which takes minutes."""
    frames = traceback.walk_stack(sys._getframe(1))
    return [SimpleNamespace(filename=f.f_code.co_filename, lineno=line) for f, line in frames]


def ask_sherlorch(script: Path) -> Answer:
    tracker = importlib.import_module("sherlorch").trace(capture_stack=True)
    # The reader goes outside: its frames must not be on the stack that sherlorch looks at.
    light = mock.patch("sherlorch.tracker.inspect", SimpleNamespace(stack=light_stack))
    with light, Reader(tracker), tracker:
        stderr = run_forked(script, traced=False).stderr
    named = CULPRIT.search(stderr)
    if not named:
        return SILENCE
    file, line = place_in(script, [(named[1], named[2])])
    return Answer(file=file, line=line)


def tools() -> list[Tool]:
    """The tools that can be asked here."""
    found = [
        Tool(name="whynan", ask=ask_whynan, tells=("line", "phase", "mechanism")),
        Tool(name="detect_anomaly", ask=ask_anomaly_mode, tells=("line", "phase")),
    ]
    if importlib.util.find_spec("sherlorch"):
        found.append(Tool(name="sherlorch", ask=ask_sherlorch, tells=("line",)))
    return found


def expectation(case: Path) -> Answer:
    expected = json.loads((case / "expected.json").read_text())
    return Answer(**{key: expected[key] for key in ("file", "line", "phase", "mechanism")})


def measure(asked: Sequence[Tool]) -> list[Outcome]:
    """Ask every tool about every program; progress goes to standard error."""
    cases = sorted(path.parent for path in CASES.glob("*/expected.json"))
    programs = [(case / "script.py", case.name, expectation(case)) for case in cases]
    healthy = [(script, script.stem, None) for script in sorted(HEALTHY.glob("*.py"))]
    outcomes = []
    for number, (script, name, expected) in enumerate([*programs, *healthy], 1):
        line = f"{number}/{len(programs) + len(healthy)} {name}"
        print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
        answers = {tool.name: patiently(tool, script) for tool in asked}
        outcomes.append(Outcome(name=name, expected=expected, answers=answers))
    print(file=sys.stderr)
    return outcomes


def patiently(tool: Tool, script: Path) -> Answer:
    try:
        return tool.ask(script)
    except TimeoutError as error:
        print(f"\n{tool.name} on {script}: {error}", file=sys.stderr)
        return SILENCE


def differences(tool: Tool, outcome: Outcome) -> list[str]:
    """What of its own claims a tool has wrong, in words."""
    said, expected = outcome.answers[tool.name], outcome.expected
    if expected is None or not said.spoke:
        return ["nothing said"]
    wrong = [] if said.place == expected.place else [said.place]
    for key in ("phase", "mechanism"):
        if key in tool.tells and getattr(said, key) != getattr(expected, key):
            wrong.append(getattr(said, key))
    return wrong


def right(tool: Tool, outcomes: Iterable[Outcome], key: str) -> str:
    """How many of the cases have this part of the answer right."""
    if key not in tool.tells:
        return "not told"
    attribute = "place" if key == "line" else key
    pairs = [(o.answers[tool.name], o.expected) for o in outcomes]
    return str(
        sum(said.spoke and getattr(said, attribute) == getattr(e, attribute) for said, e in pairs)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table that draws itself for the terminal and for Markdown."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def drawn(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for name in self.header:
            table.add_column(name.replace("`", ""), overflow="fold")
        for row in self.rows:
            table.add_row(*(cell.replace("`", "") for cell in row))
        return table

    def markdown(self) -> str:
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"## {self.title}\n\n{table}\n"


def totals(asked: Sequence[Tool], failing: list[Outcome], healthy: list[Outcome]) -> Grid:
    rows = []
    for tool in asked:
        spoke = sum(o.answers[tool.name].spoke for o in failing)
        alarms = sum(o.answers[tool.name].spoke for o in healthy)
        parts = (right(tool, failing, key) for key in ("line", "phase", "mechanism"))
        rows.append((f"`{tool.name}`", str(spoke), *parts, str(alarms)))
    header = ("", "says something", "right line", "right phase", "right mechanism")
    return Grid(
        title=f"Totals: {len(failing)} failing programs, {len(healthy)} healthy ones",
        header=(*header, "false alarms"),
        rows=rows,
    )


def by_phase(asked: Sequence[Tool], failing: list[Outcome]) -> Grid:
    rows = []
    for phase in PHASES:
        group = [o for o in failing if o.expected and o.expected.phase == phase]
        counts = (right(tool, group, "line") for tool in asked)
        rows.append((phase, str(len(group)), *counts))
    names = (f"`{tool.name}`" for tool in asked)
    return Grid(title="Right line, by phase", header=("phase", "cases", *names), rows=rows)


def by_case(asked: Sequence[Tool], failing: list[Outcome]) -> Grid:
    rows = []
    for o in failing:
        assert o.expected is not None
        cells = (", ".join(differences(tool, o)) or "right" for tool in asked)
        origin = f"{o.expected.place}, {o.expected.phase}, {o.expected.mechanism}"
        rows.append((o.name, origin, *cells))
    names = (f"`{tool.name}`" for tool in asked)
    return Grid(title="Every case", header=("case", "origin", *names), rows=rows)


def false_alarms(asked: Sequence[Tool], healthy: list[Outcome]) -> Grid:
    rows = []
    for o in healthy:
        said = [o.answers[tool.name] for tool in asked]
        if any(answer.spoke for answer in said):
            rows.append((o.name, *(answer.place if answer.spoke else "" for answer in said)))
    names = (f"`{tool.name}`" for tool in asked)
    return Grid(title="False alarms", header=("healthy program", *names), rows=rows)


INTRO = """\
# Accuracy

measured with torch {torch} on {cases} cases

Each case is a short program that ends with a NaN or an Inf where it matters, together with the
line, the phase and the mechanism of the operation that made the first one (`tests/cases`). For a
gradient that fails, the line is that of the forward expression. The healthy programs
(`tests/healthy`) hold infinities and NaN that do no harm; anything said about one of them is a
false alarm. All programs run unmodified. They are whynan's own regression tests as well: its
column shows that it agrees with them, not how often it is right about programs it has never met.

* `whynan`: the first anomaly in the report of `whynan run`.
* `detect_anomaly`: `torch.autograd.set_detect_anomaly(True)`, switched on before the program
  starts. Its answer is the innermost line of the program's own files in the traceback of the
  forward call that it prints. It looks at gradients, and at NaN only, so the phase that it
  implies is always `backward`. Lightning's `detect_anomaly` is the same switch.
{sherlorch}
A traceback with which the program itself ends is nobody's answer and counts for no tool. In the
table of cases, "right" means that all that the tool tells is right; otherwise the parts that it
has wrong are shown.
"""
SHERLORCH = """\
* `sherlorch` {version} has no command of its own. Its `trace(capture_stack=True)` is entered around
  the whole program, and it is asked about the first non-finite tensor that the program calls
  `backward()` on, prints, or reads with `item()`, `tolist()`, `numpy()` or `float()` and whose
  history it knows. Its answer is the first culprit; it tells neither phase nor mechanism. It
  speaks only because it is asked: its false alarms are tensors that are infinite on purpose and
  are read.
"""
NO_SHERLORCH = """\
* `sherlorch` is measured as well where it can be imported; it was not installed for this table.
"""
OTHERS = """\
## Tools that are not in the tables

These could not be asked for a line of an unmodified program:

* `tracetorch-ml` and `DebugUnderflowOverflow` of `transformers` are given a model in the program's
  source, watch the inputs and outputs of its modules, and name a module.
* `gradscope` is attached to a model and an optimizer in the program's source and keeps statistics
  of gradients and updates.
* `nansense` is an interactive viewer that is wired into the training loop.
* `TorchSnooper` decorates functions and prints the tensors of every line.

PyPI has no project named `torch-nansi`, `torch-nan-detector`, `pytorch-nan-detector`,
`nan-detector`, `nan-finder`, `nan-hunter`, `nan-tracer`, `nantrace`, `nanguard` or
`torch-sanitizer`.
"""


def page(grids: Sequence[Grid], cases: int) -> str:
    """The text of docs/accuracy.md."""
    peer = NO_SHERLORCH
    if importlib.util.find_spec("sherlorch"):
        peer = SHERLORCH.format(version=importlib.import_module("sherlorch").__version__)
    intro = INTRO.format(torch=torch.__version__, cases=cases, sherlorch=peer)
    return "\n".join([intro, *(grid.markdown() for grid in grids), OTHERS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {DOC.relative_to(ROOT)}")
    write = parser.parse_args().write
    asked = tools()
    outcomes = measure(asked)
    failing = [o for o in outcomes if o.expected]
    healthy = [o for o in outcomes if not o.expected]
    grids = [
        totals(asked, failing, healthy),
        by_phase(asked, failing),
        false_alarms(asked, healthy),
        by_case(asked, failing),
    ]
    console = Console(width=max(Console().width, 120))
    for grid in grids:
        console.print(grid.drawn())
    if write:
        DOC.parent.mkdir(exist_ok=True)
        by_hand = DOC.read_text().partition(BY_HAND) if DOC.exists() else ("", "", "")
        DOC.write_text("\n".join([page(grids, len(failing)), "".join(by_hand[1:])]).rstrip() + "\n")


if __name__ == "__main__":
    main()
