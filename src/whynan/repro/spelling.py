"""How a call is written, the way people would where that comes to the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from whynan.ops.table import LISTS, kernel
from whynan.repro.case import Case, Result, Slot, Step
from whynan.seam.members import schema_of

SYMBOLS = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "MatMult": "@", "Pow": "**"}
NAMES = {"self": "x", "input": "x", "other": "y", "tensors": "x", "params": "x"}
ROOMS = ("", "nn.functional.", "linalg.", "special.", "fft.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """A call as text, and what of its result is looked at: `result`, `result[1]`, an operand."""

    call: str
    watched: str


def names_of_tensors(case: Case) -> dict[int, str]:
    """As torch calls its arguments."""
    found: dict[int, str] = {}

    def name(value: Any, wanted: str) -> None:
        if isinstance(value, list):
            for item in value:
                name(item, wanted.rstrip("s") if wanted != "x" else wanted)
        elif isinstance(value, Slot) and value.number not in found:
            free, count = wanted, 2
            while free in found.values():
                free, count = f"{wanted}{count}", count + 1
            found[value.number] = free

    for step in case.steps:
        arguments = schema_of(step.function).arguments
        for argument, value in zip(arguments, step.args, strict=False):
            name(value, NAMES.get(argument.name, argument.name))
        for key, value in step.kwargs.items():
            name(value, NAMES.get(key, key))
    return found


def spellings(step: Step, names: dict[int, str], output: int) -> Iterator[Spelling]:
    """From the way people write it to the operator's own name."""
    base = step.op.split(".")[1].rstrip("_")
    row = kernel(base)[0] if step.op.startswith("aten.") else None
    watched = _watched(step, names, output)
    for one in _plainer(step):
        values = [literal(a, names) for a in one.args]
        if row is not None and row.python and len(values) == 2 and not one.kwargs:
            symbol = SYMBOLS.get(row.python[0])
            if symbol is not None and base in row.aten:
                yield Spelling(call=f"{values[0]} {symbol} {values[1]}", watched="result")
        for function in _functions(base, row):
            for arguments in _arguments(one, names):
                for what in dict.fromkeys(("result", watched)):
                    yield Spelling(call=f"{function}({arguments})", watched=what)
        if one.args and isinstance(one.args[0], Slot):
            rest = Step(one.op, one.args[1:], one.kwargs)
            for name in _own_names(base, row):
                if hasattr(torch.Tensor, name):
                    for arguments in _arguments(rest, names, skip=1):
                        yield Spelling(call=f"{values[0]}.{name}({arguments})", watched="result")
    yield operator(step, names, output)


def operator(step: Step, names: dict[int, str], output: int) -> Spelling:
    """By the name that nobody types, which is always right."""
    values = [literal(a, names) for a in step.args]
    values += [f"{k}={literal(v, names)}" for k, v in step.kwargs.items()]
    return Spelling(
        call=f"torch.ops.{step.op}({', '.join(values)})", watched=_watched(step, names, output)
    )


def _watched(step: Step, names: dict[int, str], output: int) -> str:
    """What it writes to, or one of its results."""
    written = [literal(step.args[i], names) for i in step.written]
    if output < len(written):
        return f"{written[output]}[0]" if written[output].startswith("[") else written[output]
    if _returns_one(step):
        return "result"
    return _among_lists(step, output) or f"result[{output - len(written)}]"


def _among_lists(step: Step, output: int) -> str | None:
    """Of an update that returns a list for each of the lists it is given, the list and the place."""
    returns = schema_of(step.function).returns
    if len(returns) < 2 or not all(str(r.type).startswith("List") for r in returns):
        return None
    given = [len(a) for a in step.args if isinstance(a, list)][: len(returns)]
    for k, length in enumerate(given):
        if output < length:
            return f"result[{k}][{output}]"
        output -= length
    return None


def literal(value: Any, names: dict[int, str]) -> str:
    """An argument as it is typed."""
    if isinstance(value, Slot):
        return names[value.number]
    if isinstance(value, Result):
        return f"step{value.call + 1}[{value.output}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(item, names) for item in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return repr(value.type)
    return repr(value)


def _returns_one(step: Step) -> bool:
    returns = schema_of(step.function).returns
    return len(returns) == 1 and not str(returns[0].type).startswith("List")


def _plainer(step: Step) -> Iterator[Step]:
    """Of an operation on lists with one tensor each, that on the tensors; then as it is."""
    lists = [a for a in step.args if isinstance(a, list) and any(isinstance(i, Slot) for i in a)]
    if step.op.split(".")[1].startswith(LISTS) and all(len(a) == 1 for a in lists):
        args = [a[0] if isinstance(a, list) and len(a) == 1 else a for a in step.args]
        yield Step(step.op, args, step.kwargs)
        if len(args) > len(lists):  # `value` has to be named where there is one tensor only
            yield Step(step.op, args[: len(lists)], {"value": args[len(lists)], **step.kwargs})
    yield step


def _own_names(base: str, row: Any) -> list[str]:
    names = [base.removeprefix(LISTS), base.strip("_").removesuffix("_ex")]
    if row is not None and base.removeprefix(LISTS) in row.aten:
        names += [row.name, *row.aten, *row.also]
    return [n for n in dict.fromkeys(names) if n and not n.startswith("_")]


def _functions(base: str, row: Any) -> Iterator[str]:
    for name in _own_names(base, row):
        for room in ROOMS:
            short = name.removeprefix(room.replace(".", "_")) if room else name
            owner: Any = torch
            for part in room.split(".")[:-1]:
                owner = getattr(owner, part)
            if callable(getattr(owner, short, None)):
                yield f"torch.{room}{short}"


def _arguments(step: Step, names: dict[int, str], skip: int = 0) -> Iterator[str]:
    """In their places; the plain ones by name; with fewer and fewer of those at the end."""
    declared = [a.name for a in schema_of(step.function).arguments][skip:]
    kwargs = {k: v for k, v in step.kwargs.items() if v is not None}
    tail = [f"{k}={literal(v, names)}" for k, v in kwargs.items()]
    settings = [f"{n}={literal(v, names)}" for n, v in zip(declared, step.args, strict=False) if not _is_tensor(v) and v is not None]  # fmt: skip
    tensors = [literal(v, names) for v in step.args if _is_tensor(v)]
    by_place = [literal(v, names) for v in step.args]
    while by_place and by_place[-1] == "None":
        by_place.pop()
    seen: set[str] = set()
    shorter: list[Callable[[int], list[str]]] = [
        lambda n: [*by_place[: len(by_place) - n], *tail],
        lambda n: [*tensors, *settings[: len(settings) - n], *tail],
        lambda n: [*tensors, *settings[: len(settings) - n]],
    ]
    fewest = max(1, len(by_place) - len(tensors) + 1)
    for less in reversed(range(fewest)):  # the shortest that comes to the same
        for way in shorter:
            text = ", ".join(way(less))
            if text not in seen:
                seen.add(text)
                yield text


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Slot, Result)) or (
        isinstance(value, list) and any(isinstance(v, (Slot, Result)) for v in value)
    )
