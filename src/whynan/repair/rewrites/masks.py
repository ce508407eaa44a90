"""Masks written with infinities: a finite mask, a guarded row, a count that is never 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.model import Site
from whynan.ops.table import failing, reading
from whynan.repair.calls import binary, call_of, fn, is_infinity, made_by, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.division import left_out_of_mean
from whynan.repair.source import Expression, Source

MASKED = ("all_masked_softmax", "inf_minus_inf", "zero_times_inf", "inf_over_inf")
ELEMENTWISE = reading("elementwise")  # as many values as before
SOFTMAXES = failing("all_masked_softmax") & reading("row", "reduction")
DISTRIBUTIONS = frozenset({"Categorical", "OneHotCategorical", "Multinomial", "multinomial"})
MAXIMA = ("max", "amax")
FILLS = ("masked_fill", "where", "masked_scatter", "index_put")
FINITE = "mask with the smallest finite number, so that a row of nothing else stays defined"


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    logsumexp = case.mechanism == "gradient_singularity" and case.forward_op == "logsumexp"
    if case.mechanism in MASKED or logsumexp:
        yield from _written_by_product(case, source, node)
        yield from _empty_maximum(case)
        if draws(source, node):
            return  # a finite mask would let it draw what is forbidden
        by_hand = list(_softmax_by_hand(case, source, node))
        yield from by_hand
        if by_hand:
            return  # another guard on the way would make up shares
        yield from _guarded_padding(case, source, node)
        yield from _finite_fill(case, source, node)
        yield from _finite_share(case, source, node)
        yield from _finite_constant(case)
        yield from _finite_scores(case, source, node)
    elif case.mechanism == "nan_literal":
        yield from _empty_maximum(case)
    elif case.mechanism == "overflow":
        yield from _selected_mask(case)
    elif case.mechanism == "empty_reduction":
        shown = case.anomaly.evidence.sink in ("observed", "output")
        without = list(left_out_of_mean(case))
        if without or not shown:  # no number that is shown stands for a mean of nothing
            yield from without or _guarded_mean(case, source, node)
        yield from _population_std(case, source, node)


def draws(source: Source, node: Expression) -> bool:
    """Whether the function draws from such scores: a distribution over what is allowed."""
    scope = source.scope(node)
    calls = source.every(cst.Call, None if scope is source.module else scope)
    return any(source.code(call.func).split(".")[-1] in DISTRIBUTIONS for call in calls)


def _written_by_product(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """(1 - keep) * -inf is NaN where keep is 1."""
    product = binary(node, cst.Multiply)
    if product is None:
        return
    for mask, infinity in ((product.left, product.right), (product.right, product.left)):
        if not is_infinity(source, infinity):
            continue
        keep = one_minus(mask)
        name, test = (keep, "== 0") if keep is not None else (mask, "!= 0")
        fill = f"masked_fill({source.receiver(name)} {test}, {source.code(infinity)})"
        title = "write the infinity with `masked_fill`: 0 times inf is NaN"
        total = source.parent(node)
        if binary(total, cst.Add) is not None and isinstance(total, cst.BinaryOperation):
            scores = total.left if total.right is node else total.right
            edit = Edit(source).replace(total, f"{source.receiver(scores)}.{fill}")
        else:
            edit = Edit(source).replace(node, f"torch.zeros_like({source.code(name)}).{fill}")
        yield from case.change(edit, "masked_fill", title, Tier.EXACT)


def _selected_mask(case: Case) -> Iterator[Candidate]:
    """`(1 - mask) * -1e9` in half precision, where that number is -inf: a selection asks for no product."""
    if case.origin.dtype != "float16" or not any((o.value or 0) < 0 for o in case.origin.inputs):
        return
    for op in case.anomaly.evidence.path:
        source = case.source_of(op.site.file) if op.site and case.is_own(op.site.file) else None
        node = source.expression_at(op.site) if source is not None and op.site is not None else None
        product = binary(node, cst.Multiply) if op.name == "mul" else None
        if source is None or product is None or op.value is None or op.value == op.value:
            continue
        for part in (product.left, product.right):
            keep = one_minus(part) or one_minus(source.definition(part))
            if not isinstance(keep, (cst.Name, cst.Attribute)):
                continue
            mask = source.code(keep)
            fill = f"masked_fill({mask} == 0, torch.finfo({mask}.dtype).min)"
            edit = Edit(source).replace(product, f"torch.zeros_like({mask}).{fill}")
            title = "write the mask as a selection, with the smallest number of the type: in float16 the constant is -inf, and 0 times inf is NaN"
            yield from case.change(edit, "masked_fill", title, Tier.EXACT)
            return


def _maximum(case: Case) -> Site | None:
    """The recorded maximum that is -inf because of a mask."""
    if case.mechanism == "nan_literal":  # nothing but that infinity came of it
        made = case.anomaly.evidence.path if case.origin.name in FILLS else ()
        return next((op.site for op in made[:1] if op.name in MAXIMA), None)
    culprit = case.culprit or next((o for o in case.origin.inputs if o.value == -math.inf), None)
    made = culprit.upstream if culprit is not None else ()
    at = next((i for i, op in enumerate(made) if op.name in MAXIMA and op.value == -math.inf), None)
    masked = at is not None and any(op.name in FILLS for op in made[at + 1 :])
    return made[at].site if at is not None and masked else None


def _empty_maximum(case: Case) -> Iterator[Candidate]:
    """`h.masked_fill(pad, -inf).amax(1)`: of a row without anything there is no largest."""
    site = _maximum(case)
    source = case.source_of(site.file) if site is not None and case.is_own(site.file) else None
    node = source.expression_at(site) if source is not None and site is not None else None
    largest = fn(source, node) if source is not None else None
    if source is None or largest is None or largest.name not in MAXIMA or largest.inplace:
        return
    whole: Expression = largest.node
    above = source.parent(whole)
    if isinstance(above, (cst.Attribute, cst.Subscript)) and above.value is whole:
        whole, above = above, source.parent(above)
    title = "let the largest of nothing be 0, where everything in a row is masked: -inf goes on as a number"
    if isinstance(above, cst.Assign) and isinstance(name := above.targets[0].target, cst.Name):
        line = source.statement(above)
        assert line is not None
        said = name.value
        edit = Edit(source).after(line, f"{said} = {said}.masked_fill({said} == -torch.inf, 0.0)")
    elif largest.name == "amax" or whole is not largest.node:
        line = source.statement(whole)
        if line is None or not _runs_once(source, whole):
            return
        said = unused(source, "largest", whole)
        edit = Edit(source).before(line, f"{said} = {source.code(whole)}")
        edit.replace(whole, f"{said}.masked_fill({said} == -torch.inf, 0.0)")
    else:
        return
    yield from case.change(edit, "empty_row", title, Tier.GUARD)


def _guarded_padding(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """A sequence that is all padding may look at its padding: nobody reads the result."""
    if not isinstance(node, cst.Call):
        return
    for arg in node.args:
        if arg.keyword is not None and arg.keyword.value == "key_padding_mask":
            mask = source.receiver(arg.value)
            text = f"{mask} & ~{mask}.all(dim=1, keepdim=True)"
            title = "leave a sequence of nothing but padding unmasked; its result is not used"
            edit = Edit(source).replace(arg.value, text)
            yield from case.change(edit, "guard_mask", title, Tier.GUARD)


def _softmax_by_hand(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """`exp(e - e.max())` over its sum: in a row of nothing but -inf there is no largest one."""
    difference, line = binary(node, cst.Subtract), source.statement(node)
    if difference is None or line is None or not isinstance(difference.left, cst.Name):
        return
    largest = difference.right
    top = made_by(source, largest.value if isinstance(largest, cst.Attribute) else largest, *MAXIMA)
    if top is None or not source.same(top.operand, difference.left):
        return
    bound = f"torch.finfo({difference.left.value}.dtype).min"
    edit = Edit(source).replace(largest, f"{source.receiver(largest)}.clamp(min={bound})")
    found = 0
    scope = source.scope(node)
    for quotient in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        if not isinstance(quotient.operator, cst.Divide) or source.start(quotient) < source.start(
            node
        ):
            continue
        total = made_by(source, quotient.right, "sum")
        if total is not None and source.same(total.operand, quotient.left):
            edit.replace(quotient.right, f"{source.receiver(quotient.right)}.clamp(min=1)")
            found += 1
    if found == 1:
        title = "give a row in which everything is masked no share at all: elsewhere the sum is at least 1"
        yield from case.change(edit, "guard_row", title, Tier.GUARD)


def _scores(source: Source, node: Expression) -> Expression | None:
    """What the softmax is taken of."""
    call = fn(source, node)
    if call is not None and (call.name in SOFTMAXES or call.name == "cross_entropy"):
        return call.operand
    if isinstance(node, cst.Call) and node.args:  # a distribution, a method of the user's
        named = [a.value for a in node.args if a.keyword and a.keyword.value == "logits"]
        return named[0] if named else None
    difference = binary(node, cst.Subtract)
    return difference.left if difference is not None else None


def _finite_fill(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """masked_fill(mask, -inf) right before the softmax."""
    scores = _scores(source, node)
    fill, direct = None, True
    for part in _terms(source, scores) if scores is not None else ():
        fill, direct = fill or made_by(source, part, "masked_fill"), fill is not None or part is scores  # fmt: skip
    value = fill.argument(1, "value") if fill is not None else None
    if fill is None or value is None or not is_infinity(source, value):
        return
    named = isinstance(fill.operand, (cst.Name, cst.Attribute))
    dtype = f"{source.code(fill.operand)}.dtype" if named else f"torch.{case.dtype}"
    lowest = f"torch.finfo({dtype}).min" if direct or case.dtype != "float16" else "-1e4"
    edit = Edit(source).replace(value, lowest)
    yield from case.change(edit, "finite_fill", FINITE, Tier.GUARD)


def _terms(source: Source, scores: Expression) -> list[Expression]:
    """`scores + bias`: the mask may be in either of them."""
    total = binary(scores, cst.Add) or binary(source.value_of(scores), cst.Add)
    return [scores, *((total.right, total.left) if total is not None else ())]


def _finite_constant(case: Case) -> Iterator[Candidate]:
    """NEG_INF = float("-inf") at the top of a file."""
    finite = "-1e4" if case.dtype == "float16" else "-1e30"
    for source in case.files():
        for assign in source.every(cst.Assign):
            negative = "-" in source.code(assign.value)
            if (
                source.scope(assign) is source.module
                and negative
                and is_infinity(source, assign.value)
            ):
                edit = Edit(source).replace(assign.value, finite)
                title = "let the impossible be very unlikely: a finite number where -inf stands"
                yield from case.change(edit, "finite_constant", title, Tier.GUARD)


def _finite_scores(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """Whoever wrote the -inf: bounded where the softmax reads it."""
    scores = _scores(source, node)
    if scores is None or source.value_of(scores) is node:
        return
    receiver = source.receiver(scores)
    simple = isinstance(scores, (cst.Name, cst.Attribute))
    bound = f"torch.finfo({receiver}.dtype).min" if simple else "-1e30"
    edit = Edit(source).replace(scores, f"{receiver}.clamp(min={bound})")
    title = "bound the scores by a finite number where they are read, whoever wrote the -inf"
    yield from case.change(edit, "finite_scores", title, Tier.GUARD)


def _finite_share(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """x / x.sum() where x holds infinities: they take no share."""
    quotient, line = binary(node, cst.Divide), source.statement(node)
    if quotient is None or line is None or not isinstance(quotient.left, cst.Name):
        return
    total = call_of(source, quotient.right, "sum")
    name = quotient.left.value
    if (
        case.mechanism == "inf_over_inf"
        and total is not None
        and source.code(total.operand) == name
    ):
        edit = Edit(source).before(line, f"{name} = {name}.masked_fill(torch.isinf({name}), 0.0)")
        title = "give infinite entries no share: inf over inf is NaN"
        yield from case.change(edit, "finite_share", title, Tier.GUARD)


def _guarded_mean(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    mean = fn(source, node)
    if mean is None or mean.name != "mean" or mean.rest:
        return
    operand = source.receiver(mean.operand)
    counted = operand
    edit, line = Edit(source), source.statement(node)
    named = isinstance(mean.operand, (cst.Name, cst.Attribute))
    if not named and (base := _same_number(source, mean.operand)) is not None:
        counted = base.value
    elif not named and line is not None and _runs_once(source, node):
        counted = unused(source, "terms", node)  # computed once
        edit.before(line, f"{counted} = {source.code(mean.operand)}")
        operand = counted
    text = f"{operand}.sum() / max({counted}.numel(), 1)"
    title = "let the mean of nothing be 0, with a count of at least 1"
    yield from case.change(edit.replace(node, text), "guard_count", title, Tier.GUARD)


def _same_number(source: Source, node: Expression) -> cst.Name | None:
    """A variable with as many elements: `x` of `x.abs().square()`."""
    call = fn(source, node)
    while call is not None and call.name in ELEMENTWISE and not call.rest:
        if isinstance(call.operand, cst.Name):
            return call.operand
        call = fn(source, call.operand)
    return None


def _runs_once(source: Source, node: Expression) -> bool:
    """Whether the statement always computes it, and once: not in a loop or a branch of its own."""
    around = (cst.CompFor, cst.BaseComp, cst.Lambda, cst.IfExp, cst.BooleanOperation)
    line = source.statement(node)
    inside = []
    for above in source.ancestors(node):
        if above is line:
            break
        inside.append(above)
    return not any(isinstance(above, around) for above in inside)


def _population_std(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    spread = fn(source, node)
    if spread is None or spread.name not in ("std", "var"):
        return
    if any(a.keyword and a.keyword.value in ("correction", "unbiased") for a in spread.rest):
        return
    rest = ", ".join([*(source.code(a).rstrip(", ") for a in spread.rest), "correction=0"])
    operand = source.receiver(spread.operand)
    text = f"{operand}.{spread.name}({rest})" if spread.namespace is None else (
        f"{spread.namespace}.{spread.name}({operand}, {rest})"
    )  # fmt: skip
    title = "divide by n, not by n - 1, which is 0 for a single value"
    edit = Edit(source).replace(node, text)
    yield from case.change(edit, "population_std", title, Tier.GUARD)
