"""A number that no measurement is: its rows are left out of the data before batches are cut from it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.model import Oddity, number
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.features import between
from whynan.repair.source import Source

FAR = 1e8  # times what is typical: no measurement of the same quantity


def propose(case: Case) -> Iterator[Candidate]:
    """`x[rows], y[rows]`: all that is cut the same way loses the same rows."""
    odd = case.anomaly.evidence.around.oddity
    if odd is None or odd.what != "outlier" or case.texts:
        return
    if abs(odd.value) < FAR * max(odd.typical, 1e-3) or case.mechanism not in (
        "overflow",
        "nan_literal",
    ):
        return
    for source in case.files():
        for loop in source.every(cst.For):
            if "backward()" not in source.code(loop.body):
                continue
            names = cut_alike(source, loop)
            line = last_given(source, loop, names)
            if len(names) > 1 and line is not None:
                yield from _left_out(case, source, line, names, odd)
                return


def cut_alike(source: Source, loop: cst.For) -> list[str]:
    """The variables that a batch is cut from: by the same rows, in the order of the source."""
    cuts: dict[str, list[str]] = {}
    for part in source.every(cst.Subscript, loop):
        if isinstance(part.value, cst.Name) and part.slice:
            rows = source.code(part.slice[0]).rstrip(", ")
            names = cuts.setdefault(rows, [])
            if part.value.value not in names:
                names.append(part.value.value)
    return max(cuts.values(), key=len, default=[])


def last_given(source: Source, loop: cst.For, names: list[str]) -> cst.SimpleStatementLine | None:
    """The line after which all of them are there, with what is written into them, before the loop."""
    scope = source.scope(loop)
    if any(not source.bindings(name, scope) for name in names):
        return None
    if any(source.start(t) > source.start(loop) for n in names for t in source.bindings(n, scope)):
        return None
    lines = [
        line
        for assign in source.every(cst.Assign)
        if source.scope(assign) is scope
        and (line := source.statement(assign)) is not None
        and source.start(line) < source.start(loop)
        and {*names} & _named(source, assign)
    ]
    return max(lines, key=source.start, default=None)


def _named(source: Source, assign: cst.Assign) -> set[str]:
    """`x` of `x = ...`, of `x[3] = ...` and of `x, y = ...`."""
    targets = [t.target for t in assign.targets]
    parts = [e.value for t in targets if isinstance(t, cst.Tuple) for e in t.elements]
    return {source.code(t).split("[")[0] for t in (*targets, *parts)}


def _left_out(
    case: Case, source: Source, line: cst.SimpleStatementLine, names: list[str], odd: Oddity
) -> Iterator[Candidate]:
    keep, limit = unused(source, "measured", line), between(odd)
    title = (
        f"leave out the rows with {number(odd.value)}, which is no measurement ({number(odd.typical)} is "
        "typical), before batches are cut: inputs and targets together"
    )
    rows = ", ".join(f"{name}[{keep}]" for name in names)
    # a table has columns; its targets, as a rule, have none
    for name in sorted(names, key=names.index, reverse=odd.column is None):
        test = f"{name}.abs() < {limit}"
        test = f"({test}).all(dim=1)" if odd.column is not None else test
        edit = Edit(source).after(line, f"{keep} = {test}", f"{', '.join(names)} = {rows}")
        yield from case.change(edit, "drop_fill_values", title, Tier.GUARD)
