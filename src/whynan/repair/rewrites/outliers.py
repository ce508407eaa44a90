"""A number that no measurement is: its rows are left out of the data before batches are cut from it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.model import Oddity, number
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.project import Project
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.features import between
from whynan.repair.rewrites.plain import again
from whynan.repair.rewrites.reading import datasets
from whynan.repair.source import Source

USUAL = 0.7  # of the values
FAR = 1e8  # times what is typical: no measurement of the same quantity


def propose(case: Case) -> Iterator[Candidate]:
    """`x[rows], y[rows]`: all that is cut the same way loses the same rows."""
    odd = case.anomaly.evidence.around.oddity or _beyond_a_gap(case)
    if odd is None or odd.what != "outlier" or case.texts:
        return
    if abs(odd.value) < FAR * max(odd.typical, 1e-3) or case.mechanism not in (
        "overflow",
        "nan_literal",
    ):
        return
    yield from _read_together(case, odd)
    for source in case.files():
        for before, names in datasets(source):
            if len(names) > 1:
                yield from _left_out(case, source, before, names, odd, after=False)
                return
        for loop in source.every(cst.For):
            if "backward()" not in source.code(loop.body):
                continue
            names = cut_alike(source, loop)
            line = last_given(source, loop, names)
            if len(names) > 1 and line is not None:
                yield from _left_out(case, source, line, names, odd)
                return


def _beyond_a_gap(case: Case) -> Oddity | None:
    """The operand itself, where no batch has told: nothing lies between its bulk and this value."""
    stats = case.culprit.stats if case.culprit is not None else None
    spread = stats.exponents if stats is not None else None
    value = case.culprit.value if case.culprit is not None else None
    if not spread or not value or not math.isfinite(value):
        return None
    below = {e: n for e, n in spread.items() if 2.0**e * FAR < abs(value)}
    if sum(below.values()) < USUAL * sum(spread.values()) or len(below) == len(spread):
        return None
    typical = 2.0 ** max(below, key=lambda e: below[e])
    column = None if stats is None or len(stats.shape) < 2 else 0
    return Oddity(what="outlier", value=value, typical=typical, column=column)


def _read_together(case: Case, odd: Oddity) -> Iterator[Candidate]:
    """`speed, power = read()`, and `speed ** 3` before any batch is cut: of all series the same rows."""
    constants = Constants(Project(case))
    source = constants.project.source(case.site.file) if case.site is not None else None
    if source is None or case.node is None or case.origin.phase != "data":
        return
    for name in (case.node, *Source.below(case.node)):
        if not isinstance(name, cst.Name) or case.source is None:
            continue
        target = _unpacked(constants, source, again(source, case.source, name))
        if target is not None:
            home, line, series, own = target
            yield from _left_out(case, home, line, series, odd, by=own)
            return


def _unpacked(
    constants: Constants, source: Source, use: cst.CSTNode
) -> tuple[Source, cst.SimpleStatementLine, list[str], str] | None:
    """`speed, power = read()`, also where a function was given `speed`."""
    given = source.given(use) if isinstance(use, cst.Name) else None
    target = source.original(given.node) if given is not None else None
    above = source.parent(target) if target is not None else None
    if isinstance(above, cst.Param):
        place = constants.from_caller(source, use)
        return _unpacked(constants, place.source, place.node) if place is not None else None
    names = source.parent(above) if isinstance(above, cst.Element) else None
    line = source.statement(target) if target is not None else None
    if not isinstance(names, cst.Tuple) or line is None or target is None:
        return None
    series = [e.value.value for e in names.elements if isinstance(e.value, cst.Name)]
    return source, line, series, target.value


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
    case: Case,
    source: Source,
    line: cst.CSTNode,
    names: list[str],
    odd: Oddity,
    by: str | None = None,
    *,
    after: bool = True,
) -> Iterator[Candidate]:
    """Found by one of them, if it is known which."""
    keep, limit = unused(source, "measured", line), between(odd)
    title = (
        f"leave out the rows with {number(odd.value)}, which is no measurement ({number(odd.typical)} is "
        "typical), before batches are cut: inputs and targets together"
    )
    rows = ", ".join(f"{name}[{keep}]" for name in names)
    # a table has columns; its targets, as a rule, have none
    order = sorted(names, key=names.index, reverse=odd.column is None)
    for name in [by] if by is not None else order:
        test = f"{name}.abs() < {limit}"
        test = f"({test}).all(dim=1)" if odd.column is not None else test
        put = Edit(source).after if after else Edit(source).before
        edit = put(line, f"{keep} = {test}", f"{', '.join(names)} = {rows}")
        yield from case.change(edit, "drop_fill_values", title, Tier.GUARD)
