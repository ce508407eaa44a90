"""Rows that hold no data, left out where the data is read: inputs and targets together."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.model import Anomaly
from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.entries import header
from whynan.repair.rewrites.amounts import unused
from whynan.repair.source import Expression, Source

OUTSIDE = ("log_nonpositive", "sqrt_negative", "invalid_domain")
MOST_MISSING = 0.3  # of the rows: what is missing more often is not mended by leaving rows out
TENSORS = frozenset({"from_numpy", "tensor", "as_tensor", "FloatTensor", "Tensor"})
READERS = frozenset({"read_csv", "read_parquet", "read_excel", "read_table", "DataFrame"})
TITLE = "leave out the rows with missing values where the data is read, inputs and targets together"


def propose(case: Case) -> Iterator[Candidate]:
    odd = case.anomaly.evidence.around.oddity
    if case.mechanism == "nonfinite_data" and case.origin.phase == "data" and _is_rare(case):
        yield from _from_table(case)
        yield from _from_pair(case)
    if case.origin.phase == "data" and case.mechanism in ("log_nonpositive", "sqrt_negative"):
        yield from _from_returned(case)
    mark = missing_mark(case.anomaly)
    if mark is not None and case.mechanism in OUTSIDE and case.origin.phase in ("data", "init"):
        yield from _from_table(case, mark)
    marked = case.mechanism == "nan_literal" and case.origin.phase == "data"
    if marked or (case.mechanism == "nonfinite_data" and _is_rare(case)):
        for source in case.files():
            yield from _from_dataset(case, source)
    if odd is not None and odd.what == "outlier" and (fill := fill_value(odd.value)) is not None:
        for source in case.files():
            yield from _without_fill(case, source, fill, odd.column is not None)


def _is_rare(case: Case) -> bool:
    stats = case.culprit.stats if case.culprit is not None else None
    rows = stats.shape[0] if stats is not None and stats.shape else 0
    return stats is not None and stats.nonfinite <= max(1, MOST_MISSING * rows)


def missing_mark(anomaly: Anomaly) -> str | None:
    """The number that stands for a missing value, where one led to the failure."""
    odd, culprit = anomaly.evidence.around.oddity, anomaly.finding.culprit
    if odd is not None and odd.what == "outlier":
        return None if is_full(abs(odd.value)) else fill_value(odd.value)
    operand = anomaly.origin.inputs[culprit] if culprit is not None else None
    if operand is None or (anomaly.origin.phase not in ("data", "init") and operand.upstream):
        return None
    value = operand.value
    return fill_value(value) if value is not None else None


def is_full(size: float) -> bool:
    """The largest number of a counter: a reading beyond its range, perhaps, and no mark."""
    return any(size in (2.0**bits, 2.0**bits - 1) for bits in (15, 16, 31, 32))


def fill_value(value: float) -> str | None:
    """How people write the number that stands for a missing value: 1e30, -9999, 2**31 - 1."""
    size = abs(value)
    sign = "-" if value < 0 else ""
    for exponent in range(5, 39):
        if abs(size / 10.0**exponent - 1) < 1e-6:
            return f"{sign}1e{exponent}"
    for digits in range(3, 10):
        if size in (float("9" * digits), float("9" * digits + ".9")):
            return f"{sign}{size:g}"
    for bits in (15, 16, 31, 32):
        if size in (2.0**bits, 2.0**bits - 1):
            return f"{sign}{int(size)}" if bits < 20 else f"{sign}{2.0**bits:.0f}"
    return None


def _from_table(case: Case, mark: str | None = None) -> Iterator[Candidate]:
    """`table` of `torch.from_numpy(table[:, :3])`: all that is cut out of it stays together."""
    source, node = case.source, case.node
    if source is None or not isinstance(node, cst.Call) or not node.args:
        return
    table = _cut_from(source, node.args[0].value)
    value = given_above(source, table) if table is not None else None
    line = source.statement(value) if value is not None else None
    if table is None or value is None or line is None:
        return
    name = table.value
    made = source.code(value.func).split(".")[-1] if isinstance(value, cst.Call) else ""
    numpy = source.imported("numpy")
    if mark is not None:
        kept = f"({name} != {mark}).all(axis=1)"
        title = f"leave out the rows with {mark}, which stands for a missing value, where the data is read"
        edit = Edit(source).after(line, f"{name} = {name}[{kept}]")
        yield from case.change(edit, "drop_fill_values", title, Tier.GUARD)
        return
    if made in READERS:
        text = f"{name} = {name}.dropna()"
    elif numpy is not None:
        text = f"{name} = {name}[{numpy}.isfinite({name}).all(axis=1)]"
    else:
        return
    yield from case.change(Edit(source).after(line, text), "drop_rows", TITLE, Tier.GUARD)


def given_above(source: Source, use: cst.Name) -> Expression | None:
    """Its value; of a table that is given further columns, or made of itself, the last `x = ...` above."""
    value = source.value_of(use)
    if value is not None:
        return value
    lines = [
        assign.value
        for assign in source.every(cst.Assign)
        if source.code(assign.targets[0].target) == use.value
        and source.scope(assign) is source.scope(use)
        and source.line(assign) < source.line(use)
    ]
    return lines[-1] if lines else None


def _cut_from(source: Source, node: Expression, depth: int = 5) -> cst.Name | None:
    """The variable whose rows these are, if it is cut by columns somewhere on the way."""
    cut = False
    while depth:
        if isinstance(node, cst.Name):
            if cut:
                return node
            value = given_above(source, node)
            if value is None:
                return None
            node, depth = value, depth - 1
        elif isinstance(node, cst.Subscript):
            node, cut = node.value, True
        elif isinstance(node, cst.Attribute):
            node = node.value
        elif isinstance(node, cst.BinaryOperation):  # `(x - x.mean()) / x.std()`
            node = node.left
        elif (call := fn(source, node)) is not None and call.namespace is not None:
            node = call.operand  # `torch.from_numpy(...)`
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            method = node.func.attr.value
            cut |= method == "drop"  # of columns, as `table.drop(columns="y")`
            node = node.func.value
        else:
            return None
    return None


def _from_pair(case: Case) -> Iterator[Candidate]:
    """`x = torch.tensor(...)` and `y = torch.tensor(...)` on lines of one block."""
    source, node = case.source, case.node
    line = source.statement(node) if source is not None and node is not None else None
    if source is None or node is None or line is None:
        return
    block = getattr(source.parent(line), "body", ())
    names: list[str] = []
    last: cst.CSTNode = line
    bad = None
    for other in block:
        assign = other.body[0] if isinstance(other, cst.SimpleStatementLine) else None
        if not isinstance(assign, cst.Assign) or not isinstance(assign.targets[0].target, cst.Name):
            continue
        calls = [assign.value, *source.every(cst.Call, assign.value)]
        tensors = [c for c in calls if isinstance(c, cst.Call) and _last(source, c) in TENSORS]
        if tensors:
            names.append(assign.targets[0].target.value)
            last = other
            bad = names[-1] if other is line else bad
    if bad is None or len(names) != 2:
        return
    stats = case.culprit.stats if case.culprit is not None else None
    tests = [_row_test(f"torch.isfinite({bad})", bad, len(stats.shape) if stats else 0)]
    edit = Edit(source).after(last, *kept(source, last, names, tests))
    yield from case.change(edit, "drop_rows", TITLE, Tier.GUARD)


def _from_returned(case: Case) -> Iterator[Candidate]:
    """`return torch.tensor(x), torch.tensor(np.log(price))`: rows without a price are no data."""
    source, node = case.source, case.node
    line = source.statement(node) if source is not None and node is not None else None
    operand = node.args[0].value if isinstance(node, cst.Call) and node.args else None
    if source is None or line is None or not isinstance(operand, cst.Name):
        return
    calls = [c for c in source.every(cst.Call, line) if _last(source, c) in TENSORS and c.args]
    names = [n.value for c in calls if (n := _bare(source, c.args[0].value)) is not None]
    if len(names) < 2 or len(names) != len(calls) or operand.value not in names:
        return
    sign = ">" if case.mechanism == "log_nonpositive" else ">="
    texts = kept(source, line, names, [f"{operand.value} {sign} 0"])
    title = f"leave out the rows without a positive `{operand.value}`, inputs and targets together"
    yield from case.change(Edit(source).before(line, *texts), "drop_rows", title, Tier.GUARD)


def _bare(source: Source, node: Expression) -> cst.Name | None:
    """The one variable in an expression, apart from the name of a module."""
    modules = {source.imported("numpy"), source.torch_name()}
    names = [n for n in (node, *source.below(node)) if isinstance(n, cst.Name) and source.reads(n)]
    found = [n for n in names if n.value not in modules]
    return found[0] if len(found) == 1 else None


def _last(source: Source, call: cst.Call) -> str:
    return source.code(call.func).split(".")[-1]


def _from_dataset(case: Case, source: Source) -> Iterator[Candidate]:
    for line, names in datasets(source):
        tests = [_row_test(f"torch.isfinite({n})", n) for n in names]
        edit = Edit(source).before(line, *kept(source, line, names, tests))
        yield from case.change(edit, "drop_rows", TITLE, Tier.GUARD)
        return


def _without_fill(case: Case, source: Source, fill: str, is_table: bool) -> Iterator[Candidate]:
    """Finite, but no measurement: the number that the device writes when it has none."""
    for line, names in datasets(source):
        keep = unused(source, "measured", line)
        texts = (
            f"{keep} = {_row_test(f'({names[0]} != {fill})', names[0], 2 if is_table else 0)}",
            f"{', '.join(names)} = {', '.join(f'{n}[{keep}]' for n in names)}",
        )
        title = f"leave out the rows with {fill}, which stands for a missing value, where the data is read"
        edit = Edit(source).before(line, *texts)
        yield from case.change(edit, "drop_fill_values", title, Tier.GUARD)
        return


def datasets(source: Source) -> Iterator[tuple[cst.CSTNode, list[str]]]:
    """`TensorDataset(x, y)`."""
    for call in source.every(cst.Call):
        line = source.statement(call) or header(source, call)
        names = [a.value.value for a in call.args if isinstance(a.value, cst.Name)]
        named = names and len(names) == len(call.args)
        if named and line is not None and _last(source, call) == "TensorDataset":
            yield line, names


def kept(source: Source, near: cst.CSTNode, names: list[str], tests: list[str]) -> tuple[str, str]:
    keep = unused(source, "known", near)
    rows = ", ".join(f"{n}[{keep}]" for n in names)
    return f"{keep} = {' & '.join(tests)}", f"{', '.join(names)} = {rows}"


def _row_test(test: str, name: str, axes: int = 0) -> str:
    """One answer per row; `axes` 0 if their number is not known."""
    if axes == 1:
        return test
    return f"{test}.all(dim=1)" if axes == 2 else f"{test}.reshape(len({name}), -1).all(dim=1)"
