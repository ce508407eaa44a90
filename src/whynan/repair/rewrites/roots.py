"""Roots whose slope at 0 is infinite, and roots of what rounding made negative."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import row
from whynan.repair.calls import Fn, binary, call_of, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import floor
from whynan.repair.rewrites.noise import without_eps
from whynan.repair.source import Expression, Source

EPS = re.compile(r"\b\w*eps(ilon)?\b[\"'\])]*$", re.IGNORECASE)


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    if source is None or case.mechanism not in ("gradient_singularity", "sqrt_negative"):
        return
    root = fn(source, case.node)
    power = binary(case.node, cst.Power)
    if case.mechanism == "gradient_singularity" and power is not None:
        if number_of(power.right) == 0.5:
            yield from _norm(case, source, power, power.left)
            yield from _eps_inside(case, source, power, power.left)
        return
    if root is None or "sqrt_negative" not in row(root.name).fails:
        return
    if case.mechanism == "gradient_singularity" and root.name == "sqrt":
        yield from _norm(case, source, root.node, root.operand)
    if case.mechanism == "sqrt_negative":
        yield from _distance(case, source, root)
    if not _chosen_by_where(source, root):
        yield from _inside(case, source, root)


def squared(source: Source, node: Expression | None) -> Expression | None:
    """`x` of `x ** 2`, `x.pow(2)`, `x.square()`, `x * x`."""
    for seen in (node, source.definition(node) if node is not None else None):
        power = binary(seen, cst.Power)
        if power is not None and number_of(power.right) == 2:
            return power.left
        product = binary(seen, cst.Multiply)
        if product is not None and source.same(product.left, product.right):
            return product.left
        call = fn(source, seen)
        if call is not None and call.name == "square":
            return call.operand
        if call is not None and call.name == "pow" and number_of(call.argument(0, "exponent")) == 2:
            return call.operand
    return None


def _norm(case: Case, source: Source, root: Expression, operand: Expression) -> Iterator[Candidate]:
    """sqrt(sum of squares) is a norm, whose slope at 0 is 0."""
    total = call_of(source, operand, "sum")
    inner = squared(source, total.operand) if total is not None else None
    if total is None or inner is None:
        return
    text = _norm_of(source, inner, total)
    if text is None:
        return
    title = "use a norm: its slope at 0 is defined"
    edit = Edit(source).replace(root, text)
    yield from case.change(edit, "vector_norm", title, Tier.EXACT)


def _norm_of(source: Source, inner: Expression, total: Fn) -> str | None:
    plain = [a for a in total.rest if a.keyword is None]
    if len(plain) > 2:
        return None
    parts = [source.code(inner.with_changes(lpar=(), rpar=()))]
    parts += [
        f"{k}={source.code(a.value)}" for k, a in zip(("dim", "keepdim"), plain, strict=False)
    ]
    parts += [
        f"{a.keyword.value.replace('axis', 'dim')}={source.code(a.value)}"
        for a in total.rest
        if a.keyword is not None
    ]
    return f"torch.linalg.vector_norm({', '.join(parts)})"


def _distance(case: Case, source: Source, root: Fn) -> Iterator[Candidate]:
    """aa + bb - 2 * a @ b.T: the distance computed from differences does not cancel."""
    minus = binary(root.operand, cst.Subtract)
    plus = binary(minus.left, cst.Add) if minus is not None else None
    product = _doubled_product(source, minus.right) if minus is not None else None
    if plus is None or product is None:
        return
    rows, columns = product
    squares = [squared(source, t.operand) if (t := call_of(source, part, "sum")) else None
               for part in (plus.left, plus.right)]  # fmt: skip
    names = {source.code(s) for s in squares if s is not None}
    if names == {rows, columns} or (len(names) == 1 and rows == columns and rows in names):
        text = f'torch.cdist({rows}, {columns}, compute_mode="donot_use_mm_for_euclid_dist")'
        title = "compute the distances from differences, which do not cancel"
        edit = Edit(source).replace(root.node, text)
        yield from case.change(edit, "cdist", title, Tier.EXACT)


def _doubled_product(source: Source, node: Expression) -> tuple[str, str] | None:
    """(a, b) of `2 * a @ b.T` or `2 * (a @ b.T)`."""
    matmul = binary(node, cst.MatrixMultiply)
    doubled = (
        binary(matmul.left, cst.Multiply) if matmul is not None else binary(node, cst.Multiply)
    )
    if doubled is None or number_of(doubled.left) != 2:
        return None
    left = doubled.right
    if matmul is None:
        matmul = binary(left, cst.MatrixMultiply)
        if matmul is None:
            return None
        left = matmul.left
    right = source.code(matmul.right)
    for ending in (".T", ".t()", ".mT"):
        if right.endswith(ending):
            return source.code(left), right.removesuffix(ending)
    return None


def _inside(case: Case, source: Source, root: Fn) -> Iterator[Candidate]:
    eps = floor(case.dtype)
    if case.mechanism == "sqrt_negative":
        if without_eps(root.operand) is not root.operand:
            return  # the eps that is there is raised
        variance = _beside_eps(source, root.operand)
        if case.origin.phase == "optimizer" and _gets_an_eps(source, root.node):
            variance = root.operand
        if variance is not None:
            text = f"{source.receiver(variance)}.clamp(min=0)"
            title = f"keep {source.quoted(variance, 'the variance')}, which rounding made negative, at 0 or above before the eps is added"
            edit = Edit(source).replace(variance, text)
            yield from case.change(edit, "positive_variance", title, Tier.GUARD)
            return
        text = f"{source.receiver(root.operand)}.clamp(min={eps})"
        title = f"keep {source.quoted(root.operand, 'what is under the root')}, which rounding made negative, above 0"
        if case.origin.phase == "optimizer":  # where a root of almost nothing divides the update
            text = f"{source.code(root.node).replace(source.code(root.operand), f'{source.receiver(root.operand)}.clamp(min=0)', 1)} + 1e-4"
            edit = Edit(source).replace(root.node, text)
            yield from case.change(edit, "clamp_and_eps", f"{title}, and the root away from 0: it divides the update", Tier.GUARD)  # fmt: skip
            return
        edit = Edit(source).replace(root.operand, text)
        yield from case.change(edit, "clamp_argument", title, Tier.GUARD)
        return
    yield from _eps_inside(case, source, root.node, root.operand)


def _eps_inside(
    case: Case, source: Source, root: Expression, operand: Expression
) -> Iterator[Candidate]:
    text = f"{source.code(operand)} + {floor(case.dtype)}"
    call = fn(source, root)
    text = f"({text})" if call is None or call.namespace is None else text
    title = (
        f"add a small number inside {source.quoted(root, 'the root')}, where the slope is finite"
    )
    edit = Edit(source).replace(operand, text)
    yield from case.change(edit, "eps_inside", title, Tier.GUARD)


def _beside_eps(source: Source, node: Expression) -> Expression | None:
    """`var` of `var + group["eps"]`."""
    total = binary(node, cst.Add)
    if total is None:
        return None
    sides = ((total.left, total.right), (total.right, total.left))
    return next((a for a, b in sides if EPS.search(source.code(b))), None)


def _gets_an_eps(source: Source, root: Expression) -> bool:
    """`var.sqrt() + eps`, `var.sqrt().add_(eps)`."""
    above = source.parent(root)
    call = source.parent(above) if isinstance(above, cst.Attribute) else None
    if isinstance(call, cst.Call) and isinstance(above, cst.Attribute) and call.args:
        added = above.attr.value.rstrip("_") == "add"
        return added and bool(EPS.search(source.code(call.args[0].value)))
    return isinstance(above, cst.BinaryOperation) and _beside_eps(source, above) is root


def _chosen_by_where(source: Source, root: Fn) -> bool:
    above = [fn(source, a) for a in source.ancestors(root.node) if isinstance(a, cst.Call)]
    return any(a is not None and a.name == "where" for a in above)
