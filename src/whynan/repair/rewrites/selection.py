"""What is not chosen still counts: `where` drops a value but not its gradient, 0 no infinity."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    if case.mechanism == "zero_times_inf":
        yield from _without_weight(case, source, node)
    if case.mechanism not in ("gradient_singularity", "sqrt_negative", "overflow"):
        return
    chosen = _where_around(source, node)
    singular = _singular_operand(source, node)
    if chosen is None or singular is None:
        return
    where, in_first = chosen
    condition = source.code(where.args[0].value)
    operand = source.code(singular)
    pair = f"{operand}, 1.0" if in_first else f"1.0, {operand}"
    text = f"torch.where({condition}, {pair})"
    title = "make the operand safe before the operation, not only its result afterwards"
    edit = Edit(source).replace(singular, text)
    yield from case.change(edit, "double_where", title, Tier.EXACT)


def _without_weight(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """0 * -inf: an impossible term that nobody asks for."""
    product = binary(node, cst.Multiply)
    values = [o.value for o in case.origin.inputs if o.value is not None]
    if product is None or len(values) != 2 or 0 not in values:
        return
    sides = (product.left, product.right)
    weight, term = sides if values[0] == 0 else sides[::-1]
    if not isinstance(weight, (cst.Name, cst.Attribute)):
        return  # it would be computed twice
    text = f"torch.where({source.code(weight)} == 0, 0.0, {source.code(term)})"
    title = "leave out the terms whose weight is 0, infinite ones too"
    edit = Edit(source).replace(term, text)
    yield from case.change(edit, "where_weighted", title, Tier.GUARD)


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


def _singular_operand(source: Source, node: Expression) -> Expression | None:
    quotient = binary(node, cst.Divide)
    if quotient is not None:
        return quotient.right
    power = binary(node, cst.Power)
    if power is not None:
        return power.left
    call = fn(source, node)
    return call.operand if call is not None else None
