"""Finite data that no model can take: a column that was never scaled, a sample far outside."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.model import Oddity
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.data import batches, kept_rows
from whynan.repair.source import Source


def propose(case: Case) -> Iterator[Candidate]:
    odd = case.anomaly.evidence.around.oddity
    if odd is None or not any(c.code == "bad_data" for c in case.anomaly.finding.causes):
        return
    for source in case.files():
        if odd.what == "unscaled":
            yield from _standardised(case, source)
        else:
            yield from _left_out(case, source, odd)


def _standardised(case: Case, source: Source) -> Iterator[Candidate]:
    """Right before the data set is made, or before the loop that trains on the whole table."""
    for name, line in _entries(source):
        mean, std = unused(source, "mean"), unused(source, "std")
        edit = Edit(source).before(
            line,
            # in float64: the square of an unscaled value may not fit into float32
            f"{mean}, {std} = {name}.double().mean(dim=0), {name}.double().std(dim=0)",
            f"{name} = (({name} - {mean}) / {std}.clamp(min=1e-6)).to({name}.dtype)",
        )
        title = "standardise the columns where the data comes in"
        yield from case.change(edit, "standardise", title, Tier.TRAINING)


def _entries(source: Source) -> Iterator[tuple[str, cst.CSTNode]]:
    """The table that is trained on, and the statement before which it can still be changed."""
    for call in source.every(cst.Call):
        line = source.statement(call)
        first = call.args[0].value if call.args else None
        named = source.code(call.func).split(".")[-1] == "TensorDataset"
        if named and line is not None and isinstance(first, cst.Name):
            yield first.value, line
    for loop in source.every(cst.For):
        if "backward()" not in source.code(loop.body):
            continue
        if any(isinstance(a, cst.For) for a in source.ancestors(loop)):
            continue
        for name in _trained_on(source, loop):
            yield name, loop


def _trained_on(source: Source, loop: cst.For) -> list[str]:
    """`net(x)` in the loop, of an `x` that was made before it."""
    scope = source.scope(loop)
    found = []
    for call in source.every(cst.Call, loop.body):
        given = call.args[0].value if len(call.args) == 1 else None
        if not isinstance(call.func, cst.Name) or not isinstance(given, cst.Name):
            continue
        made = source.bindings(given.value, scope)
        if made and all(source.start(m) < source.start(loop) for m in made):
            found.append(given.value)
    return list(dict.fromkeys(found))


def _left_out(case: Case, source: Source, odd: Oddity) -> Iterator[Candidate]:
    """`for x, y in loader:` without the samples that are as far outside as this one."""
    limit = _between(odd)
    for first, names in batches(source):
        keep = unused(source, "usual")
        condition = f"({names[0]}.abs() < {limit}).flatten(1).all(dim=1)"
        edit = Edit(source).before(first, *kept_rows(keep, condition, names))
        title = f"leave out the samples with a value beyond {limit}"
        yield from case.change(edit, "drop_outliers", title, Tier.TRAINING)


def _between(odd: Oddity) -> str:
    """A power of ten halfway, in magnitude, between what is typical and the outlier."""
    low, high = max(odd.typical, 1e-3), abs(odd.value)
    return f"1e{round((math.log10(low) + math.log10(high)) / 2)}"
