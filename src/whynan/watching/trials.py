"""Trials of a search: trainings that the program starts in order to reject most of them.

A search over learning rates, weight decays or momenta is seen by what runs: an optimizer is made in a
turn of a loop, with the number that the loop's variable has; or a library that searches calls for it.
"""

from __future__ import annotations

import argparse
import ast
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from whynan.seam.optimizers import Optimizer, parameters
from whynan.seam.sites import program_frames
from whynan.seam.tensors import any_bad
from whynan.seam.variables import locals_of
from whynan.source.turns import scope_and_way

SEARCHED = ("lr", "weight_decay", "momentum")
LIBRARIES = ("optuna", "hyperopt", "skopt", "nevergrad", "ray.tune", "sklearn.model_selection._search")  # fmt: skip
RANGE_TESTS = ("lightning.pytorch.tuner.lr_finder", "pytorch_lightning.tuner.lr_finder", "ignite.handlers.lr_finder", "torch_lr_finder")  # fmt: skip
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
SETTINGS = (argparse.Namespace, SimpleNamespace)
MAX_DEPTH, MAX_NUMBERS = 2, 32  # of what a loop goes through, which may be a group of settings

_Place = tuple[CodeType, int]


@dataclass(slots=True, kw_only=True)
class Trial:
    """One of a search's trainings, and the search as far as it is seen."""

    search: Any  # a library's module, or the loop
    lines: range = range(0)  # of the loop
    ends_so: bool = False  # by its nature: rates are raised until nothing is learnt any more
    places: set[_Place] = field(default_factory=set)  # where its optimizers were made

    def is_running(self, frame: FrameType | None) -> bool:
        if isinstance(self.search, str):
            return _library_above(frame, (self.search,)) is not None
        return any(f.f_code is self.search and f.f_lineno in self.lines for f in _outwards(frame))


class Trials:
    """Knows in which trial the program is."""

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self._last: Trial | None = None
        self._optimizer: weakref.ref[Optimizer] | None = None  # the newest

    def began_spoilt(self) -> bool:
        """Whether what is trained is bad, asked before the trial has spoilt anything itself."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        return optimizer is not None and any_bad(p for _, p in parameters(optimizer))

    def optimizer_made(self, optimizer: Optimizer) -> Trial | None:
        """The trial that begins with it."""
        frame, self._optimizer = sys._getframe(1), weakref.ref(optimizer)
        made = next(program_frames(frame), None) if self.active else None
        if made is None:
            return None
        place, last = (made.f_code, made.f_lasti), self._last
        trial = _searching(frame, optimizer)
        goes_on = trial is not None and last is not None and trial.search == last.search
        if last is not None and goes_on and place not in last.places:
            last.places.add(place)  # a second optimizer of the same training
            return None
        if trial is not None:
            trial.places.add(place)
        self._last = trial
        return trial

    def current(self) -> Trial | None:
        """Where the program is now."""
        frame, last = sys._getframe(1), self._last
        if not self.active:
            return None
        if last is not None and last.is_running(frame):
            return last
        tested = _library_above(frame, RANGE_TESTS)
        return None if tested is None else Trial(search=tested, ends_so=True)


def _searching(frame: FrameType, optimizer: Optimizer) -> Trial | None:
    library = _library_above(frame, LIBRARIES)
    if library is not None:
        return Trial(search=library)
    numbers = (optimizer.defaults.get(name) for name in SEARCHED)
    wanted = {number for number in numbers if isinstance(number, float)}
    for outer in program_frames(frame):
        lines = _loop_over(outer, wanted)
        if lines is not None:
            return Trial(search=outer.f_code, lines=lines)
    return None


def _loop_over(frame: FrameType, wanted: set[float]) -> range | None:
    """The loop around what runs in this frame whose variable has one of these numbers."""
    held = {name for name, value in locals_of(frame).items() if wanted & {*_numbers(value)}}
    if held and frame.f_code.co_name in COMPREHENSIONS:
        return range(frame.f_code.co_firstlineno, sys.maxsize)
    around = scope_and_way(frame.f_code, frame.f_lasti) if held else None
    way = around[1] if around is not None else []
    loops: list[tuple[ast.expr, ast.stmt]] = [(n.target, n) for n in way if isinstance(n, ast.For)]
    inside = ast.walk(way[-1]) if way and not isinstance(way[-1], ast.For) else ()
    loops += [(n.target, way[-1]) for n in inside if isinstance(n, ast.comprehension)]
    for target, node in loops:
        if held & {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}:
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return None


def _numbers(value: Any, depth: int = 0) -> Iterator[float]:
    """In a number, or in a few that belong together. Only its type is asked: a proxy whose object is gone
    raises at anything else."""
    kind = type(value)
    if issubclass(kind, float):
        yield float(value)
    if issubclass(kind, SETTINGS) or hasattr(kind, "__dataclass_fields__"):
        value = getattr(value, "__dict__", ())
        kind = type(value)
    if depth < MAX_DEPTH and issubclass(kind, (dict, list, tuple)) and len(value) <= MAX_NUMBERS:
        for item in [*value.values()] if issubclass(kind, dict) else value:
            yield from _numbers(item, depth + 1)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _library_above(frame: FrameType | None, names: tuple[str, ...]) -> str | None:
    if not any(name in sys.modules for name in names):
        return None
    for outer in _outwards(frame):
        module = str(outer.f_globals.get("__name__"))
        for name in names:
            if module == name or module.startswith(f"{name}."):
                return name
    return None
