"""Cosine similarities: the function for them, or of vectors that are normalised first."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import row
from whynan.repair.calls import binary, call_of, fn
from whynan.repair.case import HALF, Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.log_space import receiver
from whynan.repair.rewrites.roots import squared
from whynan.repair.source import Expression, Source

NORMS = row("norm").spellings
OUTER = ("outer", "ger")
MECHANISMS = ("overflow", "division_by_zero", "inf_over_inf", "gradient_singularity")
TITLE = "normalise first, in float32: the products of the lengths leave the range of half precision, those of unit vectors do not"


def propose(case: Case) -> Iterator[Candidate]:
    """`a @ b.T / (na[:, None] * nb[None, :])` in half precision."""
    source, node = case.source, case.node
    half = {case.dtype, *(o.stats.dtype for o in case.origin.inputs if o.stats)} & {*HALF}
    if source is None or node is None or not half or case.mechanism not in MECHANISMS:
        return
    scope = source.scope(node)
    for quotient in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        if not isinstance(quotient.operator, cst.Divide):
            continue
        pairs, pair = _every_pair(source, quotient), _pair(source, quotient)
        seen = pairs[2] if pairs is not None else pair[3] if pair is not None else []
        if not any(node is p or node in source.below(p) for p in (quotient, *seen)):
            continue
        functional = source.functional()
        if pairs is not None:
            one, other = (f"{functional}.normalize({x}.float(), dim=-1)" for x in pairs[:2])
            text = f"{one} @ {other}.T"
        elif pair is not None:
            one, other = (receiver(x) + ".float()" for x in pair[:2])
            text = f"{functional}.cosine_similarity({one}, {other}, dim={pair[2]})"
        else:
            continue
        edit = Edit(source).replace(quotient, text).inline(seen)
        yield from case.change(edit, "normalize", TITLE, Tier.EXACT)


def _every_pair(
    source: Source, quotient: cst.BinaryOperation
) -> tuple[str, str, list[Expression]] | None:
    """The two matrices, and the values of the variables that were looked into."""
    seen: list[Expression] = []

    def value(node: Expression) -> Expression:
        found = source.definition(node)
        seen.extend([found] if found is not None else [])
        return found or node

    product = _matrix_product(source, value(quotient.left))
    bottom = value(quotient.right)
    lengths = binary(bottom, cst.Multiply) or binary(bottom, cst.MatrixMultiply)
    call = fn(source, bottom)
    sides = [lengths.left, lengths.right] if lengths is not None else []
    if call is not None and call.name in OUTER and len(call.rest) == 1:
        sides = [call.operand, call.rest[0].value]
    found = [_rows_of(source, value(_bare(source, side))) for side in sides]
    if product is None or len(found) != 2 or found != [source.code(p) for p in product]:
        return None
    return source.receiver(product[0]), source.receiver(product[1]), seen


def _matrix_product(source: Source, node: Expression) -> tuple[Expression, Expression] | None:
    """a and b of `a @ b.T`."""
    product, call = binary(node, cst.MatrixMultiply), fn(source, node)
    pair = (product.left, product.right) if product is not None else None
    if call is not None and call.name in ("mm", "matmul") and len(call.rest) == 1:
        pair = call.operand, call.rest[0].value
    turned = _turned(source, pair[1]) if pair is not None else None
    return (pair[0], turned) if pair is not None and turned is not None else None


def _turned(source: Source, node: Expression) -> Expression | None:
    """b of `b.T`, `b.t()`."""
    if isinstance(node, cst.Attribute) and node.attr.value in ("T", "mT"):
        return node.value
    call = fn(source, node)
    plain = call is not None and (call.name == "t" or (call.name == "transpose" and len(call.rest) == 2))  # fmt: skip
    return call.operand if call is not None and plain else None


def _bare(source: Source, node: Expression) -> Expression:
    """Without what only turns it: `na[:, None]`, `nb.unsqueeze(0)`, `nb.T`."""
    if isinstance(node, cst.Subscript):
        return node.value
    call = fn(source, node)
    if call is not None and call.name == "unsqueeze":
        return call.operand
    return _turned(source, node) or node


def _rows_of(source: Source, node: Expression) -> str | None:
    """The matrix of which these are the lengths of the rows."""
    norm = fn(source, node)
    if norm is None or norm.name not in NORMS or norm.argument(9, "p", "ord") is not None:
        return None
    dim = norm.argument(1, "dim", "axis")
    return (
        source.code(norm.operand) if dim is not None and source.code(dim) in ("1", "-1") else None
    )


def cosine(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """(a * b).sum(dim) / (a.norm(dim=dim) * b.norm(dim=dim)) is F.cosine_similarity(a, b, dim)."""
    found = _pair(source, quotient)
    if found is None:
        return
    a, b, dim = found[:3]
    text = f"{source.functional()}.cosine_similarity({a}, {b}, dim={dim})"
    title = "use `F.cosine_similarity`, for which a zero vector is similar to nothing"
    edit = Edit(source).replace(quotient, text).inline(found[3])
    yield from case.change(edit, "cosine_similarity", title, Tier.EXACT)


def _pair(
    source: Source, quotient: cst.BinaryOperation
) -> tuple[str, str, str, list[Expression]] | None:
    """The two vectors, the axis, and the values of the variables that were looked into."""
    lengths = binary(quotient.right, cst.Multiply) or binary(source.definition(quotient.right), cst.Multiply)  # fmt: skip
    dot = _dot(source, quotient.left)
    found = [_length(source, side) for side in (lengths.left, lengths.right)] if lengths else []
    if dot is None or sorted(found, key=str) != sorted([(x, dot[2]) for x in dot[:2]]):
        return None
    seen = (quotient.left, quotient.right, *((lengths.left, lengths.right) if lengths else ()))
    return *dot, [*filter(None, map(source.definition, seen))]


def _dot(source: Source, node: Expression) -> tuple[str, str, str] | None:
    """a, b and the axis."""
    node = source.definition(node) or node
    total = fn(source, node)
    if total is None:
        return None
    if total.name == "einsum" and len(total.rest) == 2 and total.namespace is not None:
        pair, _, left = source.code(total.operand).strip("\"'").replace(" ", "").partition("->")
        first, _, second = pair.partition(",")
        if first != second or left != first[:-1]:
            return None
        return source.code(total.rest[0].value), source.code(total.rest[1].value), "-1"
    dim = total.argument(0, "dim", "axis")
    if total.name != "sum" or dim is None or len(total.rest) != 1:
        return None
    product = binary(source.definition(total.operand) or total.operand, cst.Multiply)
    if product is None:
        inner = squared(source, total.operand)
        return (source.code(inner), source.code(inner), source.code(dim)) if inner else None
    return source.code(product.left), source.code(product.right), source.code(dim)


def _length(source: Source, node: Expression) -> tuple[str, str] | None:
    """Of what vector, and along which axis."""
    norm = call_of(source, node, *NORMS)
    if norm is not None:
        dim = norm.argument(1 if norm.name == "norm" else 9, "dim")
        plain = norm.argument(2, "keepdim") is None and norm.argument(9, "p", "ord") is None
        return (source.code(norm.operand), source.code(dim)) if dim is not None and plain else None
    root = call_of(source, node, "sqrt")
    inner = _dot(source, root.operand) if root is not None else None
    return (inner[0], inner[2]) if inner is not None and inner[0] == inner[1] else None


def normalized_in_float(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """F.normalize's own eps of 1e-12 is nothing in float16."""
    call = fn(source, node)
    if (
        call is None
        or call.name not in ("normalize", "cosine_similarity")
        or case.dtype != "float16"
    ):
        return
    text = f"{source.receiver(call.operand)}.float()"
    title = "normalise in float32: its eps of 1e-12 is 0 in float16"
    edit = Edit(source).replace(call.operand, text)
    other = call.argument(0, "x2") if call.name == "cosine_similarity" else None
    if other is not None:
        edit.replace(other, f"{source.receiver(other)}.float()")
    yield from case.change(edit, "cast_float32", title, Tier.EXACT)
