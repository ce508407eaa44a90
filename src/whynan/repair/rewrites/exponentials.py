"""Exponentials that overflow: the stable function that was meant, or a bound on the exponent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from whynan.model import OpRecord
from whynan.ops.table import that
from whynan.repair.calls import Fn, binary, call_of, fn, is_one
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import METADATA
from whynan.repair.places import Lost, reads_of
from whynan.repair.source import Expression, Source
from whynan.source.bindings import Binding

SCALED = that("keeps") | {"mul", "div", "neg"}  # what lies between
HUGE = 1e8
MANY = 32  # exponents: fewer tell nothing of what is usual
USUAL = 0.1  # of all exponents: more than that are no exceptions
DIVIDES = that("splits") | {"select", "narrow"}
LAYERS = frozenset({"addmm", "mm", "linear", "bmm", "baddbmm"})


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    if source is None or case.mechanism not in ("overflow", "gradient_singularity", "inf_over_inf"):
        return
    if case.mechanism == "overflow" and case.forward_op not in ("exp", "expm1"):
        yield from _huge_before(case)
    exp = fn(source, case.node)
    if (
        exp is None
        or exp.name not in ("exp", "expm1")
        or case.forward_op not in ("exp", "expm1", "mul")
    ):
        return
    yield from _decaying(case, source, exp)
    yield from _softmax(case, source, exp)
    yield from _shifted(case, source, exp)
    yield from _sigmoid(case, source, exp)
    yield from _bounded(case, source, exp)


def _decaying(case: Case, source: Source, exp: Fn) -> Iterator[Candidate]:
    """`u / expm1(u)`, which is 0 where `expm1` overflows: with a power that decays."""
    quotient, stats = source.parent(exp.node), case.culprit.stats if case.culprit else None
    if exp.name != "expm1" or binary(quotient, cst.Divide) is None or exp.inplace:
        return
    if stats is None or stats.min is None or stats.min < 0:
        return  # below 0 it is the other sign that overflows
    if isinstance(quotient, cst.BinaryOperation) and quotient.right is exp.node:
        u = source.receiver(exp.operand)
        text = f"{source.code(quotient.left)} * torch.exp(-{u}) / -torch.expm1(-{u})"
        title = "divide by `expm1` with the sign turned round: the exponential then decays, and does not overflow"
        yield from case.change(Edit(source).replace(quotient, text), "decaying", title, Tier.EXACT)


def _softmax(case: Case, source: Source, exp: Fn) -> Iterator[Candidate]:
    """exp(x) / exp(x).sum(dim) is softmax."""
    for quotient in source.every(cst.BinaryOperation, _within(source, exp.node)):
        shares = _shares(source, quotient)
        if shares is None or not _is_one_of(source, exp, shares[:2]):
            continue
        text = f"torch.softmax({source.code(exp.operand)}, dim={source.code(shares[2])})"
        title = "use `softmax`, which subtracts the largest value first"
        edit = Edit(source).replace(quotient, text)
        yield from case.change(edit, "softmax", title, Tier.EXACT)


def _shares(source: Source, node: Expression) -> tuple[Fn, Fn, Expression] | None:
    """The exponentials above and below, and the axis, of exp(x) / exp(x).sum(dim)."""
    quotient = binary(node, cst.Divide)
    top = call_of(source, quotient.left, "exp") if quotient is not None else None
    total = call_of(source, quotient.right, "sum") if quotient is not None else None
    bottom = call_of(source, total.operand, "exp") if total is not None else None
    if quotient is None or top is None or total is None or bottom is None:
        return None
    dim = total.argument(0, "dim", "axis")
    changed = isinstance(quotient.left, cst.Name) and _written_between(source, quotient.left)
    if dim is None or changed or isinstance(dim, (cst.Tuple, cst.List)):
        return None  # of several axes softmax knows nothing
    return (top, bottom, dim) if source.same(top.operand, bottom.operand) else None


def _is_one_of(source: Source, exp: Fn, calls: tuple[Fn, ...]) -> bool:
    return source.start(calls[0].node) == source.start(exp.node) or calls[1].node is exp.node


def softmax_by_hand(source: Source, node: Expression) -> tuple[str, str] | None:
    """x and the axis, also where the largest of x was subtracted first."""
    shares = _shares(source, node)
    if shares is None or "keepdim" not in source.code(_total(source, node)):
        return None
    inside = shares[0].operand
    difference = binary(inside, cst.Subtract) or binary(source.definition(inside), cst.Subtract)
    largest = difference.right if difference is not None else None
    largest = largest.value if isinstance(largest, (cst.Attribute, cst.Subscript)) else largest
    top = call_of(source, largest, "max", "amax") if largest is not None else None
    if top is not None and difference is not None and source.same(top.operand, difference.left):
        inside = difference.left
    return source.code(inside), source.code(shares[2])


def _total(source: Source, node: Expression) -> Expression:
    quotient = binary(node, cst.Divide)
    total = call_of(source, quotient.right, "sum") if quotient is not None else None
    return total.node if total is not None else node


def sigmoid_by_hand(source: Source, node: Expression) -> str | None:
    """x of 1 / (1 + exp(-x)) and of exp(x) / (1 + exp(x))."""
    quotient = binary(node, cst.Divide)
    exp = _one_plus(source, quotient.right) if quotient is not None else None
    return _logit(source, quotient, exp) if quotient is not None and exp is not None else None


def _shifted(case: Case, source: Source, exp: Fn) -> Iterator[Candidate]:
    """A weight that is divided by its own sum later: a common factor changes nothing."""
    above = source.parent(exp.node)
    if not isinstance(above, cst.Assign) or not isinstance(above.targets[0].target, cst.Name):
        return
    name = above.targets[0].target.value
    for use in source.other_uses(name, exp.node):
        quotient = source.parent(use)
        if not isinstance(quotient, cst.BinaryOperation) or quotient.left is not use:
            continue
        total = call_of(source, quotient.right, "sum")
        if total is None or source.code(total.operand) != name:
            continue
        dim = total.argument(0, "dim", "axis")
        most = largest_of(source.receiver(exp.operand), source.code(dim) if dim else None)
        text = exp.rebuilt("exp", f"{source.code(exp.operand)} - {most}")
        if exp.namespace is None:
            text = f"({source.code(exp.operand)} - {most}).exp()"
        title = "subtract the largest exponent first; the division by the sum cancels it"
        edit = Edit(source).replace(exp.node, text)
        yield from case.change(edit, "shift_by_max", title, Tier.EXACT)
        return


def largest_of(operand: str, dim: str | None) -> str:
    return f"{operand}.amax({dim}, keepdim=True)" if dim else f"{operand}.max()"


def _sigmoid(case: Case, source: Source, exp: Fn) -> Iterator[Candidate]:
    """1 / (1 + exp(-x)) and exp(x) / (1 + exp(x)) are sigmoid."""
    for quotient in source.every(cst.BinaryOperation, _within(source, exp.node)):
        if not isinstance(quotient.operator, cst.Divide):
            continue
        logit = _logit(source, quotient, exp)
        if logit is not None:
            edit = Edit(source).replace(quotient, f"torch.sigmoid({logit})").inline([exp.node])
            title = "use `sigmoid`, whose gradient is finite everywhere"
            yield from case.change(edit, "sigmoid", title, Tier.EXACT)


def _logit(source: Source, quotient: cst.BinaryOperation, exp: Fn) -> str | None:
    below = _one_plus(source, quotient.right)
    if below is None:
        return None
    above = call_of(source, quotient.left, "exp")
    if is_one(quotient.left) and below.node is exp.node:
        return _negative(source, below.operand)
    same = above is not None and source.same(above.operand, below.operand)
    if above is not None and same and exp.node in (above.node, below.node):
        return source.code(above.operand)
    return None


def _negative(source: Source, node: Expression) -> str:
    """`x` of `-x`, `x / t` of `-x / t`."""
    first = node.left if isinstance(node, cst.BinaryOperation) else node
    if isinstance(first, cst.UnaryOperation) and isinstance(first.operator, cst.Minus):
        if first is node:
            return source.code(first.expression)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Multiply, cst.Divide)):  # fmt: skip
            return source.code(node.with_changes(left=first.expression, lpar=(), rpar=()))
    return f"-{source.receiver(node)}"


def _one_plus(source: Source, node: Expression) -> Fn | None:
    """exp(u) of `1 + exp(u)`."""
    plus = binary(node, cst.Add) or binary(source.definition(node), cst.Add)
    for one, other in ((plus.left, plus.right), (plus.right, plus.left)) if plus else ():
        if is_one(one) and (exp := call_of(source, other, "exp")) is not None:
            return exp
    return None


def _huge_before(case: Case) -> Iterator[Candidate]:
    """An exponential that is huge already, before what overflowed."""
    makers = case.culprit.upstream if case.culprit is not None else ()
    for index, op in enumerate(makers):
        if op.name == "exp" and (op.value or 0) > HUGE:
            yield from _bounded_where_made(case, makers[index + 1 :])
            return


def _bounded_where_made(case: Case, makers: Sequence[OpRecord]) -> Iterator[Candidate]:
    """The output of a layer that is the exponent, or half of it: all its uses then agree."""
    for op in makers:
        if op.name in SCALED:
            continue
        source = case.source_of(op.site.file) if op.site and case.is_own(op.site.file) else None
        made = source.expression_at(op.site) if source is not None and op.site is not None else None
        if source is None or op.name not in LAYERS or not isinstance(made, cst.Call):
            return
        if _is_divided(source, made):
            return  # other parts of the output are no exponents
        for bound in _bounds(case):
            edit = Edit(source).replace(made, f"{source.code(made)}.clamp(-{bound}, {bound})")
            title = f"bound {source.quoted(made, 'the exponent')}, whose exponential is taken, to -{bound}..{bound}"
            yield from case.change(edit, "clamp_exponent", title, Tier.GUARD)
        return


def _is_divided(source: Source, made: cst.Call) -> bool:
    """`net(x).chunk(2)`, also through a variable."""
    above = source.parent(made)
    uses: list[cst.CSTNode] = [made]
    if isinstance(above, cst.Assign) and isinstance(above.targets[0].target, cst.Name):
        uses += source.other_uses(above.targets[0].target.value, made)
    for use in uses:
        outer = source.parent(use)
        if isinstance(outer, cst.Subscript) and outer.value is use:
            return True
        call = source.parent(outer) if isinstance(outer, (cst.Attribute, cst.Arg)) else None
        found = fn(source, call)
        if found is not None and found.operand is use and found.name in DIVIDES:
            return True
    return False


def _bounds(case: Case) -> tuple[str, ...]:
    """None where exponents beyond them are the rule from the first step on, as of similarities
    over a small temperature: a bound would cut off what the loss is about."""
    bounds = ("10", "5") if case.dtype == "float16" else ("20", "10", "5")
    stats = case.culprit.stats if case.culprit is not None else None
    if case.origin.step > 0 or stats is None or not stats.exponents or stats.count < MANY:
        return bounds
    beyond = sum(n for power, n in stats.exponents.items() if 2.0**power > float(bounds[0]))
    positive = 1 - (stats.negatives + stats.zeros) / max(stats.count, 1)
    return () if beyond * positive > USUAL * stats.count else bounds


def _bounded(case: Case, source: Source, exp: Fn) -> Iterator[Candidate]:
    yield from _bounded_where_made(case, case.culprit.upstream if case.culprit else ())
    for bound in _bounds(case):
        title = f"bound the exponent of {source.quoted(exp.node, '`exp`')} to at most {bound}"
        if _has_other_uses(source, exp):  # one use alone would no longer fit the others
            edit = _bounded_once(source, exp, bound)
            title += ", wherever the function uses it"
        else:
            text = f"{source.receiver(exp.operand)}.clamp(max={bound})"
            edit = Edit(source).replace(exp.operand, text)
        if edit is not None:
            yield from case.change(edit, "clamp_exponent", title, Tier.GUARD)


def _has_other_uses(source: Source, exp: Fn) -> bool:
    """Whether the exponent's value is read besides; its shape or type does not count."""
    if not isinstance(exp.operand, cst.Name):
        return False
    given = source.given(exp.operand)
    target = source.original(given.node) if given is not None and not given.choices else None
    try:
        if target is None:
            raise Lost
        reads = [p.node for p in reads_of(source, target)]
    except Lost:
        reads = [*source.other_uses(exp.operand.value, exp.node)]
    return any(r is not exp.operand and not _asks_metadata(source, r) for r in reads)


def _asks_metadata(source: Source, read: cst.CSTNode) -> bool:
    above = source.parent(read)
    return isinstance(above, cst.Attribute) and above.attr.value in METADATA


def _bounded_once(source: Source, exp: Fn, bound: str) -> Edit | None:
    """Right where the name gets its value, so that every use has the bounded one."""
    assert isinstance(exp.operand, cst.Name)
    name, given = exp.operand.value, source.given(exp.operand)
    if given is None:
        return None
    statement = f"{name} = {name}.clamp(max={bound})"
    target = source.original(given.node)
    if given.choices or given.how == "parameter":  # there is no one line where it gets it
        first = _first_reader(source, given)
        return Edit(source).before(first, statement) if first is not None else None
    line = source.statement(target) if target is not None else None
    return Edit(source).after(line, statement) if line is not None else None


def _first_reader(source: Source, given: Binding) -> cst.CSTNode | None:
    """The statement in which a value is read first, of the block in which it is always read."""
    names = source.names
    found = [r for r in names.reads(given.sources[0]) if names.given(r) is given]
    reads = sorted(filter(None, map(source.original, found)), key=source.start)
    ways = [[*source.ancestors(read)] for read in reads]
    kinds = (cst.IndentedBlock, cst.Module)
    blocks = [a for a in ways[0] if isinstance(a, kinds) and all(a in way for way in ways)]
    line = ways[0][ways[0].index(blocks[0]) - 1]
    return line if source.held(line, given.place) is given else None


def _within(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    scope = source.scope(node)
    return None if scope is source.module else scope


def _written_between(source: Source, name: cst.Name) -> bool:
    """`weights[banned] = 0` between the exponential and the quotient."""
    targets = [t.target for t in source.every(cst.AssignTarget, _within(source, name))]
    return any(isinstance(t, cst.Subscript) and source.code(t.value) == name.value for t in targets)
