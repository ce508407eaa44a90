"""What is not chosen still counts: `where` drops a value but not its gradient, 0 no infinity."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import row
from whynan.repair.calls import binary, fn, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

CALLED = re.compile(r"(^|[^a-z])(mask|masks|valid|keep|alive|active|present|observed|known)([^a-z]|$)")  # fmt: skip
SINGULAR = frozenset(
    {"gradient_singularity", "sqrt_negative", "invalid_domain", "log_nonpositive", "division_by_zero",
     "inf_minus_inf"}
)  # fmt: skip


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    if case.mechanism == "zero_times_inf":
        yield from _without_weight(case, source, node)
    singular = _singular_operand(source, node)
    if case.mechanism in SINGULAR:
        yield from _weighed_later(case, source, node, singular)
    if case.mechanism == "overflow":
        yield from _overflowed_and_left_out(case, source, node)
    if case.mechanism not in (
        "gradient_singularity",
        "sqrt_negative",
        "overflow",
        "invalid_domain",
    ):
        return
    chosen = _where_around(source, node)
    if chosen is None or singular is None:
        return
    where, in_first = chosen
    condition = source.code(where.args[0].value)
    operand, safe = source.code(singular), _safe(source, node)
    pair = f"{operand}, {safe}" if in_first else f"{safe}, {operand}"
    text = f"torch.where({condition}, {pair})"
    title = "make the operand safe before the operation, not only its result afterwards"
    edit = Edit(source).replace(singular, text)
    yield from case.change(edit, "double_where", title, Tier.EXACT)


def _weighed_later(
    case: Case, source: Source, node: Expression, singular: Expression | None
) -> Iterator[Candidate]:
    """`(per_step * valid).sum()`: what is multiplied by 0 in the end need not be computed before."""
    mask = _mask_after(source, node)
    if mask is None:
        return
    test = f"{source.receiver(mask)} != 0"
    edit = Edit(source)
    if binary(node, cst.Subtract) is not None:
        edit.replace(node, f"torch.where({test}, {source.code(node)}, 0.0)")
    elif singular is not None:
        edit.replace(
            singular, f"torch.where({test}, {source.code(singular)}, {_safe(source, node)})"
        )
    title = f"leave out before the operation what is multiplied by 0 after it ({source.quoted(mask, 'the mask')})"
    yield from case.change(edit, "double_where", title, Tier.EXACT)


def _overflowed_and_left_out(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """`err = (p - y) ** 2`, then `err * sea`: what is squared where the weight is 0 is never asked for."""
    weight, part = _weight_after(case, source, node), _squared_part(source, node)
    if weight is None or part is None:
        return
    text = f"torch.where({source.receiver(weight)} != 0, {source.code(part.with_changes(lpar=(), rpar=()))}, 0.0)"
    said = source.quoted(weight, "the weight")
    title = f"leave out before it is squared what is multiplied by 0 after it ({said}): 0 times inf is NaN"
    yield from case.change(Edit(source).replace(part, text), "select_before", title, Tier.EXACT)


def _squared_part(source: Source, node: Expression) -> Expression | None:
    """What becomes too large: the base, or the target of a squared error."""
    power, call = binary(node, cst.Power), fn(source, node)
    if power is not None:
        return power.left
    if call is not None and call.name in ("pow", "square") and not call.inplace:
        return call.operand
    return call.argument(0, "target") if call is not None and call.name == "mse_loss" else None


def _weight_after(case: Case, source: Source, node: Expression) -> Expression | None:
    """What it is multiplied by on the way to the harm: where that made a NaN of inf, it is 0."""
    path = case.anomaly.evidence.path
    spans = {(op.site.line, op.site.column) for op in path if op.name == "mul" and op.site is not None}  # fmt: skip
    for product in source.every(cst.BinaryOperation):
        if not isinstance(product.operator, cst.Multiply) or source.start(product) not in spans:
            continue
        for weight, other in ((product.right, product.left), (product.left, product.right)):
            plain = isinstance(weight, (cst.Name, cst.Attribute, cst.Subscript))
            same = other is node or source.value_of(other) is node
            if plain and same and source.means_the_same(weight, product, node):
                return weight
    return None


def _mask_after(source: Source, node: Expression) -> Expression | None:
    """What a value made of this one is multiplied by, if that is called a mask and means the same here."""
    scope = source.scope(node)
    within = None if scope is source.module else scope
    made: set[str] = set()

    def holds(part: cst.CSTNode) -> bool:
        nodes = (part, *source.below(part))
        return any(n is node or (isinstance(n, cst.Name) and n.value in made) for n in nodes)

    for assign in source.every(cst.Assign, within):
        target = assign.targets[0].target
        if isinstance(target, cst.Name) and source.start(assign) >= source.start(source.statement(node) or node) and holds(assign.value):  # fmt: skip
            made.add(target.value)
    for product in source.every(cst.BinaryOperation, within):
        if not isinstance(product.operator, cst.Multiply) or product is node:
            continue
        for mask, other in ((product.right, product.left), (product.left, product.right)):
            named = isinstance(mask, (cst.Name, cst.Attribute, cst.Subscript))
            if named and CALLED.search(source.code(mask).lower()) and not holds(mask) and holds(other):  # fmt: skip
                return mask if source.means_the_same(mask, product, node) else None
    return None


def _without_weight(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """0 * -inf: an impossible term that nobody asks for."""
    product = binary(node, cst.Multiply)
    values = [o.value for o in case.origin.inputs if o.value is not None]
    if product is None or len(values) != 2 or 0 not in values:
        return
    sides = (product.left, product.right)
    weight, term = sides if values[0] == 0 else sides[::-1]
    if any(isinstance(part, cst.Call) for part in source.below(weight)):
        return  # it would be computed twice
    text = f"torch.where({_is_zero(source, weight)}, 0.0, {source.code(term)})"
    title = "leave out the terms whose weight is 0, infinite ones too"
    edit = Edit(source).replace(term, text)
    stats = [o.stats for o in case.origin.inputs if o.value == 0]
    share = bool(stats) and stats[0] is not None and stats[0].min == 0 and (stats[0].max or 2) <= 1
    # A share of 0 of a logarithm of 0, or of the best of nothing: the limit is 0.
    tier = Tier.EXACT if share and -math.inf in values else Tier.GUARD
    yield from case.change(edit, "where_weighted", title, tier)


def _is_zero(source: Source, weight: Expression) -> str:
    """`done == 1` for `gamma * (1 - done)`: what the weight says."""
    product = binary(weight, cst.Multiply)
    for part in (product.left, product.right) if product is not None else (weight,):
        rest = one_minus(part)
        if rest is not None and product is not None:
            return f"{source.receiver(rest)} == 1"
    return f"{source.receiver(weight)} == 0"


def _where_around(source: Source, node: Expression) -> tuple[cst.Call, bool] | None:
    """The `torch.where` around an expression, or around the variable it was given to."""
    places: list[cst.CSTNode] = [node]
    above = source.parent(node)
    if isinstance(above, cst.Assign) and isinstance(above.targets[0].target, cst.Name):
        places += source.other_uses(above.targets[0].target.value, node)
    for place in places:
        inside: cst.CSTNode = place
        for outer in source.ancestors(place):
            call = fn(source, outer)
            if call is not None and call.name == "where" and call.namespace is not None:
                args = call.node.args
                if len(args) == 3 and inside in (args[1], args[2]):
                    return call.node, inside is args[1]
            inside = outer
    return None


def _safe(source: Source, node: Expression) -> str:
    """A number inside the domain."""
    call = fn(source, node)
    domain = row(call.name).domain if call is not None else None
    if domain is None or (1.0 in domain and domain.high == math.inf and domain.low < 1):
        return "1.0"
    if math.isinf(domain.low) or math.isinf(domain.high):
        return f"{domain.low + 1 if math.isinf(domain.high) else domain.high - 1}"
    return f"{(domain.low + domain.high) / 2}"


def _singular_operand(source: Source, node: Expression) -> Expression | None:
    quotient = binary(node, cst.Divide)
    if quotient is not None:
        return quotient.right
    power = binary(node, cst.Power)
    if power is not None:
        return power.left
    call = fn(source, node)
    return call.operand if call is not None else None
