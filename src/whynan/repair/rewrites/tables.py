"""Rows of a table for which NumPy or pandas computed no number: left out before, where the table is read."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.project import Project
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.arrays import is_array
from whynan.repair.rewrites.plain import again, divisor_of
from whynan.repair.rewrites.reading import MOST_MISSING, TENSORS
from whynan.repair.rewrites.spreads import is_spread
from whynan.repair.source import Expression, Source

MARKS = (2.0**16 - 1, 2.0**31 - 1, 2.0**32 - 1)  # of integers: the largest of them stands for none
CELLS = ("loc", "iloc", "at", "iat")
SMALLEST_SPREAD = 1e-6  # of equal numbers it is not 0 but their rounding


def propose(case: Case) -> Iterator[Candidate]:
    if is_array(case) and case.mechanism in ("division_by_zero", "log_nonpositive"):
        yield from _without_zeros(case)
        yield from _infinite_is_missing(case)
        yield from _without_spread(case)
    if is_mark(case) and case.mechanism == "overflow":
        yield from _without_marks(case)


def is_mark(case: Case) -> bool:
    """65535 stands for "no value", and is none in any type."""
    value = case.origin.inputs[0].value if case.origin.inputs else None
    return case.origin.name == "_to_copy" and value in MARKS


def _is_rare(count: int, case: Case) -> bool:
    """Of the rows: whatever stands in more of them is no exception."""
    stats = case.culprit.stats if case.culprit is not None else None
    rows = stats.shape[0] if stats is not None and stats.shape else 0
    return 0 < count <= MOST_MISSING * rows


# ---- a column of a DataFrame ---------------------------------------------------------------------


def _without_zeros(case: Case) -> Iterator[Candidate]:
    """`df["volume"].pct_change()`: days without a trade go before anything is computed of the rows."""
    source, stats = case.source, case.culprit.stats if case.culprit is not None else None
    column = _column(case, source) if source is not None else None
    if source is None or stats is None or column is None or source.imported("pandas") is None:
        return
    table = source.code(column.value)
    line = _made(source, table, source.code(column), column)
    first = _first_of_function(source, table, column) if line is None else None
    if not _is_rare(stats.zeros, case):
        return
    if stats.negatives and case.mechanism == "log_nonpositive":
        return  # -9999 stands for no value: another matter than a 0
    sign = "!=" if case.mechanism == "division_by_zero" else ">"
    text = f"{table} = {table}[{source.code(column)} {sign} 0]"
    why = "relative to 0 nothing has a value" if sign == "!=" else "0 has no logarithm"
    title = f"leave out the rows in which `{source.code(column)}` is 0 before anything is computed of it: {why}"
    edit = Edit(source)
    if line is not None:
        edit.after(line, text)
    elif first is not None:
        edit.before(first, text)
    yield from case.change(edit, "drop_rows", title, Tier.GUARD)


def _first_of_function(
    source: Source, table: str, use: cst.CSTNode
) -> cst.SimpleStatementLine | None:
    """Of a function that is given the table: where it begins to compute."""
    function = source.scope(use)
    given = source.bindings(table, function)
    if not isinstance(function, cst.FunctionDef) or len(given) != 1:
        return None
    lines = [*getattr(function.body, "body", ())]
    told = function.get_docstring() is not None
    first = lines[told] if len(lines) > told else None
    is_parameter = isinstance(source.parent(given[0]), cst.Param)
    return first if is_parameter and isinstance(first, cst.SimpleStatementLine) else None


def _column(case: Case, source: Source) -> cst.Subscript | cst.Attribute | None:
    """The one column, `df["volume"]`, that is divided by or whose logarithm is taken."""
    node = divisor_of(case) if binary(case.node, cst.Divide) is not None else case.node
    found = dict[str, cst.Subscript]()
    for part in (node, *source.below(node)) if node is not None else ():
        if isinstance(part, cst.Subscript) and isinstance(part.value, cst.Name) and part.slice:
            index = part.slice[0].slice
            if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
                found.setdefault(source.code(part), part)
    return next(iter(found.values())) if len(found) == 1 else None


def _made(
    source: Source, table: str, column: str, use: cst.CSTNode
) -> cst.SimpleStatementLine | None:
    """The last line above that makes the table itself, this column of it, or cells."""
    lines = [
        line
        for assign in source.every(cst.Assign)
        if source.scope(assign) is source.scope(use)
        and (target := source.code(assign.targets[0].target))
        and (target in (table, column) or target.startswith(tuple(f"{table}.{c}[" for c in CELLS)))
        and source.start(assign) < source.start(use)
        and (line := source.statement(assign)) is not None
    ]
    last = lines[-1] if lines else None
    return last if last is not source.statement(use) else None


def _infinite_is_missing(case: Case) -> Iterator[Candidate]:
    """`df.dropna()` after it: what is infinite is missing as well."""
    source = case.source
    pandas, numpy = (source.imported(m) if source else None for m in ("pandas", "numpy"))
    if source is None or case.node is None or pandas is None or numpy is None:
        return
    edit, found = Edit(source), 0
    for call in source.every(cst.Call):
        func, later = call.func, source.start(call) > source.start(case.node)
        if isinstance(func, cst.Attribute) and func.attr.value == "dropna" and later:
            table = source.code(func.value)
            edit.replace(func.value, f"{table}.replace([{numpy}.inf, -{numpy}.inf], {numpy}.nan)")
            found += 1
    if found == 1:
        title = "let `dropna` leave out what is infinite as well: relative to 0 nothing has a value"
        yield from case.change(edit, "drop_infinite", title, Tier.GUARD)


# ---- windows without a spread --------------------------------------------------------------------


def _without_spread(case: Case) -> Iterator[Candidate]:
    """`z = (a - win.mean(-1)) / win.std(-1)`: rows of x and y together, where both have become tensors."""
    constants = Constants(Project(case))
    source = constants.project.source(case.site.file) if case.site is not None else None
    divisor, stats = divisor_of(case), case.culprit.stats if case.culprit is not None else None
    if source is None or divisor is None or case.source is None or stats is None:
        return
    divisor = again(source, case.source, divisor)
    pair = _tensors_below(source, divisor)
    spread = is_spread(constants, source, divisor) and _is_rare(stats.zeros, case)
    if not spread or pair is None:
        return
    last, names = pair
    if not source.means_the_same(divisor, divisor, last):
        return
    least = f"{SMALLEST_SPREAD:g}".replace("e-0", "e-") if (stats.max or 0) > 1e-3 else "0"
    test = f"{source.receiver(divisor)} > {least}"
    test = f"({test}).all(axis=1)" if len(stats.shape) == 2 else test
    keep = unused(source, "varied", last)
    rows = ", ".join(f"{name}[{keep}]" for name in names)
    edit = Edit(source).after(last, f"{keep} = {test}", f"{', '.join(names)} = {rows}")
    title = "leave out the rows that never change, inputs and targets together: relative to a spread of 0 nothing has a value"
    yield from case.change(edit, "drop_rows", title, Tier.GUARD)


def _tensors_below(
    source: Source, node: cst.CSTNode
) -> tuple[cst.SimpleStatementLine, list[str]] | None:
    """`x = torch.tensor(z)` and `y = torch.tensor(...)` below it in its block: the last line, the names."""
    line = source.statement(node)
    block = list(getattr(source.parent(line), "body", ())) if line is not None else []
    names, last = list[str](), None
    for other in block[block.index(line) + 1 :] if line in block else ():
        assign = other.body[0] if isinstance(other, cst.SimpleStatementLine) else None
        target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
        if isinstance(target, cst.Name) and any(_is_tensor(source, c) for c in source.every(cst.Call, other)):  # fmt: skip
            names.append(target.value)
            last = other
    return (last, names) if last is not None and len({*names}) == len(names) == 2 else None


def _is_tensor(source: Source, call: cst.Call) -> bool:
    return source.code(call.func).split(".")[-1] in TENSORS


# ---- the largest integer, given to half precision ------------------------------------------------


def _without_marks(case: Case) -> Iterator[Candidate]:
    """`torch.from_numpy(raw.astype(np.int32)).half()` of an array in which 65535 means "no return"."""
    source, node, operand = case.source, case.node, case.culprit or case.origin.inputs[0]
    line = source.statement(node) if source is not None and node is not None else None
    stats, result = operand.stats, case.origin.outputs[0].stats if case.origin.outputs else None
    if source is None or line is None or stats is None or result is None or not stats.shape:
        return
    tables = _tables_of(source, line)
    rows = stats.shape[0]
    if not tables or not 0 < result.nonfinite <= MOST_MISSING * rows:
        return
    mark, name, keep = f"{operand.value:.0f}", tables[0], unused(source, "measured", line)
    test = f"{name} != {mark}"
    if len(stats.shape) > 1:
        flat = f"({test})" if len(stats.shape) == 2 else f"({test}).reshape(len({name}), -1)"
        test = f"{flat}.all(axis=1)"
    text = f"{', '.join(tables)} = {', '.join(f'{t}[{keep}]' for t in tables)}"
    edit = Edit(source).before(line, f"{keep} = {test}", text)
    title = f"leave out the items with {mark}, which stands for no value, where the data is read: no type makes a measurement of it"
    yield from case.change(edit, "drop_fill_values", title, Tier.GUARD)


def _tables_of(source: Source, line: cst.SimpleStatementLine) -> list[str]:
    """The arrays that become tensors in this block, this line's first; none if one has no name."""
    found = list[str]()
    block = getattr(source.parent(line), "body", ())
    for other in (line, *(o for o in block if o is not line)):
        for call in source.every(cst.Call, other) if isinstance(other, cst.SimpleStatementLine) else ():  # fmt: skip
            if _is_tensor(source, call) and call.args:
                base = _base(call.args[0].value)
                if base is None or source.given(base) is None:
                    return []
                found += [base.value] if base.value not in found else []
    return found


def _base(node: Expression) -> cst.Name | None:
    """`raw` of `raw.astype(np.int32)`."""
    while isinstance(node, (cst.Call, cst.Attribute)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node if isinstance(node, cst.Name) else None
