"""How small a guard may be in each type, as people write it."""

from __future__ import annotations

import libcst as cst

from whynan.model import Operand, TensorStats
from whynan.ops.table import that
from whynan.repair.source import Source


def floor(dtype: str) -> str:
    """A positive number that the type holds and whose logarithm and root are harmless."""
    return "1e-6" if dtype == "float16" else "1e-12"


def divisor_floor(dtype: str) -> str:
    """A number that may be divided by: its reciprocal is still finite."""
    return "1e-4" if dtype == "float16" else "1e-8"


def margin(dtype: str) -> str:
    """How far inside an open interval: 1 minus this is below 1 in the type."""
    return {"float16": "1e-3", "bfloat16": "1e-2"}.get(dtype, "1e-6")


def spread_floor(dtype: str, usual: float | None) -> str:
    """As `divisor_floor`, of a standard deviation: that of equal values is not 0 but their rounding,
    so that the bound must be above it; where all spreads are tiny, below them."""
    if dtype == "float16":
        return "1e-3"
    return "1e-8" if usual is not None and 0 < usual < 1e-3 else "1e-5"


COUNTS = that("counts", "compares") | {"index_add", "scatter_add"}


def is_count(operand: Operand | None) -> bool:
    """Whether a value is a number of things: from integers or a mask, and whole."""
    if operand is None or operand.stats is None:
        return False
    largest = operand.stats.max
    if largest is None or largest != int(largest) or (operand.stats.min or 0) < 0:
        return False
    if "int" in operand.stats.dtype or operand.stats.dtype == "bool":
        return True
    for op in operand.upstream:
        if op.name in COUNTS:
            return True
        dtypes = [o.stats.dtype for o in op.inputs if o.stats is not None]
        if any(d == "bool" or "int" in d for d in dtypes) and op.name in ("_to_copy", "sum", "abs"):
            return True
        if op.name == "sum" and is_mask(op.inputs[0].stats if op.inputs else None):
            return True
    return False


def is_mask(stats: TensorStats | None) -> bool:
    """Zeros and ones: an adjacency matrix, say."""
    if stats is None or (stats.min, stats.max) != (0, 1):
        return False
    return stats.exponents is None or len(stats.exponents) <= 1


def _is_attribute(source: Source, name: cst.Name) -> bool:
    above = source.parent(name)
    return isinstance(above, cst.Attribute) and above.attr is name


def unused(source: Source, name: str, near: cst.CSTNode) -> str:
    """A name for a new variable in the function around a node."""
    scope = source.scope(near)
    names = source.every(cst.Name, None if scope is source.module else scope)
    taken = {n.value for n in names if not _is_attribute(source, n)}
    while name in taken:
        name += "_"
    return name
