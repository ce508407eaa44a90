"""Guards around an operation of NumPy, CuPy or JAX: torch's own functions do not fit there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import row
from whynan.repair.calls import binary
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Source

IMPORTS = {
    name: re.compile(pattern, re.MULTILINE)
    for name, pattern in (
        ("numpy", r"^\s*import numpy(?: as (\w+))?|^\s*import .*(?<!\.)\bnumpy as (\w+)"),
        ("cupy", r"^\s*import cupy(?: as (\w+))?$|^\s*import .*\bcupy as (\w+)"),
        ("jax.numpy", r"^\s*import .*\bjax\.numpy as (\w+)|^\s*from jax import .*\bnumpy as (\w+)"),
    )
}


def is_array(case: Case) -> bool:
    """Whether NumPy, CuPy or JAX made the value."""
    return case.origin.op.startswith(("array.", "numpy.", "jax.", "scipy."))


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    numpy = _called(case, source) if source is not None else None
    if source is None or node is None or numpy is None or not is_array(case):
        return
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        floor = _floor(node.func.attr.value, is_slope=case.origin.derived)
        argument = node.args[0]
        lowest = case.culprit.stats.min if case.culprit and case.culprit.stats else None
        mark = floor not in (None, "0") and (lowest or 0) < 0  # no rounding: it means something
        if floor is not None and argument.keyword is None and not mark:
            text = f"{numpy}.maximum({source.code(argument.value)}, {floor})"
            title = f"keep the argument of `{source.code(node.func)}` at or above {floor}"
            edit = Edit(source).replace(argument.value, text)
            yield from case.change(edit, "np_maximum", title, Tier.GUARD)
    power = binary(node, cst.Power)
    if power is not None and case.mechanism == "invalid_domain":  # a schedule past its end
        text = f"{numpy}.maximum({source.code(power.left.with_changes(lpar=(), rpar=()))}, 0)"
        title = f"keep {source.quoted(power.left, 'the base')} at or above 0: below it, no such power is defined"
        edit = Edit(source).replace(power.left, text)
        yield from case.change(edit, "np_maximum", title, Tier.GUARD)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        divisor, stats = source.code(node.right), case.culprit.stats if case.culprit else None
        if stats is None or case.mechanism != "division_by_zero":
            return
        never_negative = stats.min is not None and stats.min >= 0
        text = f"{numpy}.maximum({divisor}, 1e-8)" if never_negative else f"{numpy}.where({divisor} == 0, 1e-8, {divisor})"  # fmt: skip
        edit = Edit(source).replace(node.right, text)
        yield from case.change(edit, "np_divisor", "keep the divisor away from 0", Tier.GUARD)


def _floor(name: str, *, is_slope: bool) -> str | None:
    """Where the numbers that a function takes, or has a slope at, begin, if they begin at 0."""
    domain = row(name).domain
    if domain is None or domain.ends != (0,) or row(name).place or name == "pow":
        return None
    return "0" if 0 in domain and not is_slope else "1e-12"


def _called(case: Case, source: Source) -> str | None:
    """What the file calls the library that made the value."""
    library = case.origin.op.rsplit(".", 1)[-1]
    name = {"cupy": "cupy", "jax": "jax.numpy"}.get(library, "numpy")
    found = IMPORTS[name].search(source.module.code)
    return (found.group(1) or found.group(2) or name) if found else None
