"""Cross entropies written out by hand, and the functions that compute them from logits."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, binary, call_of, fn, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

BCE_TITLE = "compute the binary cross entropy from the logits, where nothing is rounded to 0 or 1"
REDUCTIONS = {"mean": "", "sum": ', reduction="sum"', None: ', reduction="none"'}


def propose(case: Case) -> Iterator[Candidate]:
    """-(y log p + (1 - y) log(1 - p)) of a sigmoid in the same function."""
    source = case.source
    log = fn(source, case.node) if source is not None else None
    if source is None or log is None or log.name != "log":
        return
    if "sigmoid" not in case.before and not case.origin.derived:
        return
    whole = binary_entropy(source, log)
    if whole is None:
        return
    node, p, target, reduction = whole
    sigmoid = call_of(source, p, "sigmoid")
    if sigmoid is None:
        return
    text = with_logits(source, source.code(sigmoid.operand), target, reduction)
    edit = Edit(source).replace(node, text)
    yield from case.change(edit, "bce_with_logits", BCE_TITLE, Tier.EXACT)


def with_logits(source: Source, logits: str, target: str, reduction: str | None) -> str:
    name = f"{source.functional()}.binary_cross_entropy_with_logits"
    return f"{name}({logits}, {target}{REDUCTIONS[reduction]})"


def binary_entropy(
    source: Source, log: Fn
) -> tuple[Expression, Expression, str, str | None] | None:
    """The whole formula around one of its logarithms: node, probability, target, reduction."""
    scope = source.scope(log.node)
    for total in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        parts = _two_terms(source, total)
        terms = [source.definition(t) or t for t in (total.left, total.right)]
        if parts is not None and any(log.node in source.below(term) for term in terms):
            p, target, negated = parts
            return _outside(source, total, p, target, negated)
    return None


def _two_terms(source: Source, total: cst.BinaryOperation) -> tuple[Expression, str, bool] | None:
    """`y log p + (1 - y) log(1 - p)`, or both with a minus."""
    minus = isinstance(total.operator, cst.Subtract)
    if not minus and not isinstance(total.operator, cst.Add):
        return None
    left, right = _term(source, total.left), _term(source, total.right)
    if left is None or right is None or left[2] is not minus or right[2]:
        return None
    for (p, factor, _), (q, other, _) in ((left, right), (right, left)):
        rest, weight = one_minus(q), one_minus(other)
        if rest is None or weight is None or one_minus(p) is not None:
            continue
        if source.same(rest, p) and source.same(weight, factor):
            return p, source.code(factor), minus
    return None


def _term(source: Source, node: Expression) -> tuple[Expression, Expression, bool] | None:
    """Of `a * log(b)` or `-a * log(b)`: b, a, and whether there is a minus."""
    node, negated = source.definition(node) or node, False
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        node, negated = node.expression, True
    product = binary(node, cst.Multiply)
    if product is None:
        return None
    for log, factor in ((product.right, product.left), (product.left, product.right)):
        call = fn(source, log)
        if call is None or call.name != "log" or call.inplace:
            continue
        if isinstance(factor, cst.UnaryOperation) and isinstance(factor.operator, cst.Minus):
            return call.operand, factor.expression, not negated
        return call.operand, factor, negated
    return None


def _outside(
    source: Source, total: Expression, p: Expression, target: str, negated: bool
) -> tuple[Expression, Expression, str, str | None] | None:
    """With the minus and the mean or sum around it, in either order."""
    node, reduction = total, None
    while True:
        above = source.parent(node)
        if isinstance(above, cst.UnaryOperation) and isinstance(above.operator, cst.Minus):
            if negated:
                break
            node, negated = above, True
            continue
        reduced = _reduced(source, node) if reduction is None else None
        if reduced is None:
            break
        node, reduction = reduced.node, reduced.name
    return (node, p, target, reduction) if negated else None


def _reduced(source: Source, node: Expression) -> Fn | None:
    above = source.parent(node)
    call = fn(source, source.parent(above)) if isinstance(above, (cst.Arg, cst.Attribute)) else None
    if call is None or call.operand is not node or call.name not in REDUCTIONS or call.rest:
        return None
    return call
