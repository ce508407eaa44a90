"""Rows for which a statistic or a function has no value: left out before it is computed."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import that
from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.project import Project
from whynan.repair.rewrites.amounts import is_count, unused
from whynan.repair.rewrites.outliers import cut_alike, last_given
from whynan.repair.rewrites.reading import TENSORS, datasets, fill_value, given_above, kept
from whynan.repair.source import Expression, Source

GIVEN = that("keeps") | {"stack", "cat"}
SCALED = ("div", "mul")
PICKED = ("index", "index_select", "select")
RARE = 0.3  # of the rows of a batch
SPREADS = ("std", "var")
GAPS = "leave out the rows with gaps before they are scaled, inputs and targets together: one NaN spoils the mean of its whole column"


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism == "nonfinite_data" and case.origin.phase == "data":
        yield from _before_scaling(case)
    elif case.origin.phase == "forward" and (
        case.mechanism == "log_nonpositive" or _density(case.node) is not None
    ):
        yield from _outside_the_domain(case)
        yield from _below_what_is_measured(case)


# ---- gaps and z-scores --------------------------------------------------------------------------


def _before_scaling(case: Case) -> Iterator[Candidate]:
    """`x = (x - x.mean(0)) / x.std(0)` of a table with gaps, on its way to `torch.tensor(x)`."""
    source, node = case.source, case.node
    operand = node.args[0].value if isinstance(node, cst.Call) and node.args else None
    if source is None or node is None or not isinstance(operand, cst.Name):
        return
    value = given_above(source, operand)
    line = source.statement(value) if value is not None else None
    if value is None or line is None:
        return
    table = _scaled(source, value)
    module = source.imported("numpy")
    if table is None or module is None:
        return
    names = [table, *(n for n in _companions(source, node) if n not in (table, operand.value))]
    if any(not _is_given_before(source, n, line) for n in names[1:]):
        return
    keep = unused(source, "known", line)
    rows = ", ".join(f"{n}[{keep}]" for n in names)
    edit = Edit(source).before(
        line,
        f"{keep} = {module}.isfinite({table}).all(axis=1)",
        f"{', '.join(names)} = {rows}",
    )
    yield from case.change(edit, "drop_rows", GAPS, Tier.GUARD)


def _scaled(source: Source, value: Expression) -> str | None:
    """The table of which the mean and the spread are taken."""
    owners: dict[str, set[str]] = {}
    for call in source.every(cst.Call, value):
        func = call.func
        if not isinstance(func, cst.Attribute):
            continue
        owner = source.code(func.value)
        if owner in ("np", "numpy") and call.args:
            owner = source.code(call.args[0].value)
        owners.setdefault(owner, set()).add(func.attr.value)
    for owner, methods in owners.items():
        if owner.isidentifier() and "mean" in methods and methods & {*SPREADS}:
            return owner
    return None


def _companions(source: Source, node: Expression) -> list[str]:
    """What becomes a tensor beside it, in the same line or the next ones."""
    scope = source.scope(node)
    found = []
    for call in source.every(cst.Call, None if scope is source.module else scope):
        if source.code(call.func).split(".")[-1] in TENSORS and call.args:
            argument = call.args[0].value
            if isinstance(argument, cst.Name) and source.scope(call) is scope:
                found.append(argument.value)
    return list(dict.fromkeys(found))


def _is_given_before(source: Source, name: str, line: cst.CSTNode) -> bool:
    targets = source.bindings(name, source.scope(line))
    return any(source.start(t) < source.start(line) for t in targets)


# ---- targets without a logarithm -----------------------------------------------------------------


def _outside_the_domain(case: Case) -> Iterator[Candidate]:
    """`torch.log(claim)` of a target that is 0 in a row or two, `Gamma(a, b).log_prob(rain)`."""
    source, operand = case.source, case.culprit
    stats = operand.stats if operand is not None else None
    if source is None or operand is None or stats is None or operand.value is None:
        return
    log = fn(source, case.node)
    mark = fill_value(operand.value)
    density = _density(case.node)
    if density is not None:
        argument: Expression = density
    elif log is not None and (log.name == "log" or (log.name == "log1p" and mark)):
        argument = log.operand
    else:
        return
    made = GIVEN | {"rsub", "sub", "pow", *SCALED, *PICKED} if density is not None else GIVEN
    before = operand.source is None or "before" in operand.source
    given = all(op.name in made for op in operand.upstream) and (operand.upstream or before)
    rare = 0 < stats.zeros + stats.negatives <= max(1, RARE * stats.count)
    one = len(stats.shape) == 1 or density is not None
    if not given or not rare or not one or is_count(operand):
        return
    passed = Constants(Project(case)).from_caller(source, argument)
    places = (Place(source, argument), *([passed] if passed is not None else []))
    found = ((p.source, *table) for p in places for table in _tables(p.source, p.node))
    for home, line, names, name, after in found:
        edit = Edit(home)
        put = edit.after if after else edit.before
        if density is not None and not stats.negatives and (stats.max or 0) <= 1:
            put(line, f"{name} = {name}.clamp(1e-3, 1 - 1e-3)")
            title = f"keep the shares in `{name}` inside the open interval: this density has no value at 0 and 1"
            yield from case.change(edit, "squeeze_shares", title, Tier.GUARD)
        elif len(names) > 1:
            put(line, *kept(home, line, names, [f"{name} != {mark}" if mark else f"{name} > 0"]))
            why = f"its {'density' if density is not None else 'logarithm'} has no value there"
            why = f"{mark} stands for a missing value" if mark else why
            which = f"with {mark} in" if mark else "without a positive"
            title = f"leave out the rows {which} `{name}`, inputs and targets together: {why}"
            yield from case.change(edit, "drop_rows", title, Tier.GUARD)
        if density is not None and not stats.negatives and (stats.max or 0) > 1:
            yield from _half_the_smallest(case, home, line, name, after=after)
        return


def _density(node: Expression | None) -> Expression | None:
    """y of `Beta(a, b).log_prob(y)`."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        return node.args[0].value if node.func.attr.value == "log_prob" else None
    return None


def _tables(
    source: Source, argument: cst.CSTNode
) -> Iterator[tuple[cst.CSTNode, list[str], str, bool]]:
    """The tables that are cut alike, which one it is, and the line after or before which they are there."""
    if isinstance(argument, cst.Name):
        for loop in source.every(cst.For):
            target = loop.target
            elements = target.elements if isinstance(target, cst.Tuple) else ()
            names = [source.code(e.value) for e in elements]
            if argument.value not in names or argument not in [*source.below(loop)]:
                continue
            for line, given in datasets(source):
                if len(given) == len(names):
                    # the second of `for x, claim in loader` is the second of `TensorDataset(a, b)`
                    yield line, given, given[names.index(argument.value)], False
    elif isinstance(argument, cst.Subscript) and isinstance(argument.value, cst.Name):
        for loop in (a for a in source.ancestors(argument) if isinstance(a, cst.For)):
            names, name = cut_alike(source, loop), argument.value.value
            last = last_given(source, loop, names)
            if name in names and last is not None:
                yield last, names, name, True


def _below_what_is_measured(case: Case) -> Iterator[Candidate]:
    """`t = days[rows] / 365`: a duration of 0 is one shorter than the shortest that can be told."""
    operand, stats = case.culprit, case.culprit.stats if case.culprit is not None else None
    if (
        operand is None
        or stats is None
        or operand.value != 0
        or stats.negatives
        or is_count(operand)
    ):
        return
    if not 0 < stats.zeros <= max(1, RARE * stats.count):
        return
    scaled = [op for op in operand.upstream if op.name not in GIVEN and op.name not in SCALED]
    if not any(op.name in SCALED for op in operand.upstream):
        return  # of the logarithm alone: there it is no measurement
    picked = next((op for op in operand.upstream if op.name in PICKED), None)
    if scaled or picked is None or picked.site is None or not case.is_own(picked.site.file):
        return
    source = case.source_of(picked.site.file)
    cut = source.expression_at(picked.site) if source is not None else None
    if source is None or not isinstance(cut, cst.Subscript) or not isinstance(cut.value, cst.Name):
        return
    for loop in (a for a in source.ancestors(cut) if isinstance(a, cst.For)):
        name = cut.value.value
        if (
            name not in cut_alike(source, loop)
            or (line := last_given(source, loop, [name])) is None
        ):
            continue
        yield from _half_the_smallest(case, source, line, name)
        return


def _half_the_smallest(
    case: Case, source: Source, line: cst.CSTNode, name: str, *, after: bool = True
) -> Iterator[Candidate]:
    text = f"{name} = {name}.clamp(min=({name}[{name} > 0].min() / 2).item())"
    title = f"let `{name}` be at least half the smallest positive one: a 0 is one that was too short to be told"
    edit = Edit(source).after(line, text) if after else Edit(source).before(line, text)
    yield from case.change(edit, "clamp_data", title, Tier.GUARD)
