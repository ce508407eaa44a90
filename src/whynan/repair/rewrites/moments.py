"""A variance from two moments, which cancel: computed from the differences to the mean instead."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, binary, call_of, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.roots import squared
from whynan.repair.source import Expression, Source

MECHANISMS = frozenset(
    {"sqrt_negative", "log_nonpositive", "division_by_zero", "gradient_singularity", "invalid_domain"}
)  # fmt: skip
TITLE = "compute the spread from the differences to the mean, which do not cancel"


def propose(case: Case) -> Iterator[Candidate]:
    """mean(x^2) - mean(x)^2 is var(x, correction=0), and its root is std."""
    if case.mechanism not in MECHANISMS:
        return
    for source, difference in _differences(case):
        found = _variance(source, difference)
        if found is None:
            continue
        values, where = found
        root, edit = _root_of(source, difference), Edit(source)
        if root is not None and source.means_the_same(values, difference, root):
            edit.replace(root, f"{source.receiver(values)}.std({where})")
        else:
            edit.replace(difference, f"{source.receiver(values)}.var({where})")
        yield from case.change(edit, "variance", TITLE, Tier.EXACT)


def _differences(case: Case) -> Iterator[tuple[Source, cst.BinaryOperation]]:
    """In the function that failed, and wherever the recording shows one on the way."""
    source, node = case.source, case.node
    if source is not None and node is not None:
        scope = source.scope(node)
        for found in source.every(cst.BinaryOperation, None if scope is source.module else scope):
            if isinstance(found.operator, cst.Subtract):
                yield source, found
    upstream = case.upstream_expression("sub")
    if upstream is not None and upstream[0].path != (source.path if source else None):
        difference = binary(upstream[1], cst.Subtract)
        if difference is not None:
            yield upstream[0], difference


def _variance(source: Source, difference: cst.BinaryOperation) -> tuple[Expression, str] | None:
    """Of what it is the variance, and the arguments: `dim=..., keepdim=..., correction=0`."""
    of_squares = call_of(source, difference.left, "mean")
    inner = squared(source, difference.right)
    of_values = call_of(source, inner, "mean") if inner is not None else None
    values = squared(source, of_squares.operand) if of_squares is not None else None
    if of_squares is None or of_values is None or values is None:
        return None
    if not source.same(values, of_values.operand):
        return None
    where = _where(source, of_squares)
    if where is None or where != _where(source, of_values):
        return None
    for mean in (of_squares, of_values):
        if not source.means_the_same(values, mean.node, difference):
            return None
    return values, ", ".join([*where, "correction=0"])


def _where(source: Source, mean: Fn) -> list[str] | None:
    """Over which axes, as keywords."""
    dim, keep = mean.argument(0, "dim", "axis"), mean.argument(1, "keepdim")
    if len(mean.rest) != sum(part is not None for part in (dim, keep)):
        return None  # in another type, say
    parts = [] if dim is None else [f"dim={source.code(dim)}"]
    return parts if keep is None else [*parts, f"keepdim={source.code(keep)}"]


def _root_of(source: Source, difference: Expression) -> Expression | None:
    """The square root that is taken of exactly this, if nothing else reads it."""
    above = source.parent(difference)
    readers: list[Expression] = [difference]
    if isinstance(above, cst.Assign) and isinstance(above.targets[0].target, cst.Name):
        readers = list(source.other_uses(above.targets[0].target.value, difference))
    for reader in readers if len(readers) == 1 else ():
        outer = source.parent(reader)
        root = (
            fn(source, source.parent(outer))
            if isinstance(outer, (cst.Arg, cst.Attribute))
            else None
        )
        if root is not None and root.name == "sqrt" and root.operand is reader and not root.inplace:
            return root.node
    return None
