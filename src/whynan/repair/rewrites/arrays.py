"""Guards around an operation of NumPy: torch's own functions do not fit there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import row
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Source

IMPORT = re.compile(r"^\s*import numpy(?: as (\w+))?|^\s*import .*\bnumpy as (\w+)", re.MULTILINE)


def is_array(case: Case) -> bool:
    """Whether NumPy made the value."""
    return case.origin.op.startswith(("array.", "numpy."))


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    numpy = _numpy(source) if source is not None else None
    if source is None or node is None or numpy is None or not is_array(case):
        return
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        floor = _floor(node.func.attr.value)
        argument = node.args[0]
        lowest = case.culprit.stats.min if case.culprit and case.culprit.stats else None
        mark = floor not in (None, "0") and (lowest or 0) < 0  # no rounding: it means something
        if floor is not None and argument.keyword is None and not mark:
            text = f"{numpy}.maximum({source.code(argument.value)}, {floor})"
            title = f"keep the argument of `{source.code(node.func)}` at or above {floor}"
            edit = Edit(source).replace(argument.value, text)
            yield from case.change(edit, "np_maximum", title, Tier.GUARD)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        divisor, stats = source.code(node.right), case.culprit.stats if case.culprit else None
        if stats is None or case.mechanism != "division_by_zero":
            return
        never_negative = stats.min is not None and stats.min >= 0
        text = f"{numpy}.maximum({divisor}, 1e-8)" if never_negative else f"{numpy}.where({divisor} == 0, 1e-8, {divisor})"  # fmt: skip
        edit = Edit(source).replace(node.right, text)
        yield from case.change(edit, "np_divisor", "keep the divisor away from 0", Tier.GUARD)


def _floor(name: str) -> str | None:
    """Where the numbers that a function takes begin, if they begin at 0."""
    domain = row(name).domain
    if domain is None or domain.ends != (0,) or row(name).place or name == "pow":
        return None
    return "0" if 0 in domain else "1e-12"


def _numpy(source: Source) -> str | None:
    """What the file calls NumPy."""
    found = IMPORT.search(source.module.code)
    return (found.group(1) or found.group(2) or "numpy") if found else None
