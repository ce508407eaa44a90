"""Bad rows in the data, memory that nobody wrote, and NaN marks that a mean forgets."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.arrays import is_array
from whynan.repair.source import Source

NAN_AWARE = {"mean": "nanmean", "sum": "nansum", "median": "nanmedian"}


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism == "nonfinite_data":
        yield from _dropped_at_entry(case)
        for source in case.files():
            yield from _dropped_in_batch(case, source)
        yield from _imputed(case)
    elif case.mechanism == "uninitialised_memory":
        yield from _zeros(case)
    elif case.mechanism == "nan_literal":
        yield from nan_aware(case, "leave the NaN marks out of the reduction as well")
    elif is_array(case):
        for source in case.files():
            yield from _dropped_in_batch(case, source)


def _entry(case: Case) -> tuple[Source, cst.SimpleStatementLine, str] | None:
    """`table = torch.tensor(records)`: the line and the name."""
    source, node = case.source, case.node
    line = source.statement(node) if source is not None and node is not None else None
    if source is None or node is None or line is None or len(line.body) != 1:
        return None
    assign = line.body[0]
    if isinstance(assign, cst.Assign) and assign.value is node:
        target = assign.targets[0].target
        if isinstance(target, cst.Name):
            return source, line, target.value
    return None


def _dropped_at_entry(case: Case) -> Iterator[Candidate]:
    entry, operand = _entry(case), case.culprit
    if entry is None or operand is None or operand.stats is None or len(operand.stats.shape) != 2:
        return
    source, line, name = entry
    edit = Edit(source).after(line, f"{name} = {name}[torch.isfinite({name}).all(dim=1)]")
    title = "drop the rows that are not finite, where the data comes in"
    yield from case.change(edit, "drop_rows", title, Tier.GUARD)


def _imputed(case: Case) -> Iterator[Candidate]:
    entry, operand = _entry(case), case.culprit
    if entry is None or operand is None or operand.stats is None or len(operand.stats.shape) != 2:
        return
    source, line, name = entry
    fill = f"{name} = torch.where(torch.isfinite({name}), {name}, {name}.nanmedian(dim=0).values)"
    title = "fill missing values with the median of their column"
    yield from case.change(Edit(source).after(line, fill), "impute", title, Tier.GUARD)


def _dropped_in_batch(case: Case, source: Source) -> Iterator[Candidate]:
    """`for x, y in loader:` keeps the samples of a batch whose input is finite."""
    for first, names in batches(source):
        keep = "finite" if not source.bindings("finite", source.scope(first)) else "finite_rows"
        condition = f"torch.isfinite({names[0]}).flatten(1).all(dim=1)"
        edit = Edit(source).before(first, *kept_rows(keep, condition, names))
        title = "leave out the samples of a batch that are not finite"
        yield from case.change(edit, "drop_samples", title, Tier.GUARD)
        return


def batches(source: Source) -> Iterator[tuple[cst.BaseStatement, list[str]]]:
    """Loops over batches that train: their first statement, and what a batch consists of."""
    for loop in source.every(cst.For):
        target: cst.BaseExpression = loop.target
        block = loop.body
        if "backward()" not in source.code(block) or not isinstance(block, cst.IndentedBlock):
            continue
        over = source.code(loop.iter)
        if over.startswith("enumerate(") and isinstance(target, cst.Tuple):
            target = target.elements[-1].value
        elif over.startswith(("zip(", "range(")):
            continue
        elements = target.elements if isinstance(target, cst.Tuple) else ()
        names = [e.value.value for e in elements if isinstance(e.value, cst.Name)]
        if names and len(names) == len(elements):
            yield block.body[0], names


def kept_rows(keep: str, condition: str, names: list[str]) -> tuple[str, str]:
    """Two statements: which samples to keep, and a batch of those."""
    parts = ", ".join(f"{name}[{keep}]" for name in names)
    return f"{keep} = {condition}", f"{', '.join(names)} = {parts}"


def _zeros(case: Case) -> Iterator[Candidate]:
    for source in case.files():
        for call in source.every(cst.Call):
            func = source.code(call.func)
            if func in ("torch.empty", "torch.empty_like") and isinstance(call.func, cst.Attribute):
                edit = Edit(source).replace(
                    call.func.attr, call.func.attr.value.replace("empty", "zeros")
                )
                title = "begin with zeros, not with whatever the memory held"
                yield from case.change(edit, "zeros", title, Tier.GUARD)


def nan_aware(case: Case, title: str) -> Iterator[Candidate]:
    """NaN marks a missing value; a plain mean on the way does not know that."""
    for op in case.anomaly.evidence.path:
        if op.name not in NAN_AWARE or op.site is None or not case.is_own(op.site.file):
            continue
        source = case.source_of(op.site.file)
        call = fn(source, source.expression_at(op.site)) if source is not None else None
        if source is not None and call is not None and call.name in NAN_AWARE:
            assert isinstance(call.node.func, cst.Attribute)
            edit = Edit(source).replace(call.node.func.attr, NAN_AWARE[call.name])
            yield from case.change(edit, "nan_aware", title, Tier.GUARD)
