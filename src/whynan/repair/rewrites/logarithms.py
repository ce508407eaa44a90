"""Logarithms of what was rounded to 0: taken in log space, or kept away from 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.model import Operand
from whynan.ops.table import row, that
from whynan.repair.calls import Fn, binary, call_of, fn, made_by, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import SAME_ELEMENTS
from whynan.repair.rewrites.amounts import floor, is_count, is_mask, margin, unused
from whynan.repair.rewrites.learnt import is_raw_output
from whynan.repair.source import Expression, Source

# The slope of a logarithm overflows for values that are not quite 0 yet.
IN_LOG_SPACE = ("log_nonpositive", "gradient_singularity", "overflow")
# What brings data in and arranges it.
GIVEN = that("keeps") | {"stack", "cat"}
CASTS = frozenset({"_to_copy", "to", "lift_fresh"})
VIEWS = SAME_ELEMENTS | {"max", "amax"}  # which keep the order of logarithms


def propose(case: Case) -> Iterator[Candidate]:
    log = fn(case.source, case.node) if case.source else None
    if case.source is not None and log is not None and log.name == "logdet":
        yield from _absolute(case, case.source, log)
        return
    if case.source is None or log is None or "log_nonpositive" not in row(case.forward_op).fails:
        return
    known = row(log.name)
    if log.name == "log" and case.mechanism in IN_LOG_SPACE:
        yield from _log_space(case, case.source, log)
    if case.mechanism not in ("log_nonpositive", "gradient_singularity"):
        return
    if log.name == "logit" and log.argument(0, "eps") is None:
        inside = (
            log.rebuilt("logit", case.source.code(log.operand)).removesuffix(")") + ", eps=1e-6)"
        )
        title = "keep the probability away from 0 and 1: `logit` has an eps for it"
        yield from case.change(
            Edit(case.source).replace(log.node, inside.replace("(, ", "(")),
            "logit_eps",
            title,
            Tier.GUARD,
        )
    elif known.domain is not None and known.domain.high == math.inf:
        yield from _floored(case, case.source, log)


def _absolute(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """Of a module's own weight, as in a flow: its determinant may be negative. That of a covariance
    may not."""
    own = isinstance(log.operand, cst.Attribute) and source.code(log.operand).startswith("self.")
    if not own or case.mechanism != "log_nonpositive":
        return
    edit = Edit(source).replace(log.node, f"torch.linalg.slogdet({source.code(log.operand)})[1]")
    title = "take the logarithm of the absolute determinant: a change of variables asks for no sign"
    yield from case.change(edit, "slogdet", title, Tier.EXACT)


def _log_space(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """Exact forms, for what the recording shows under the logarithm."""
    before = case.before
    if "_softmax" in before or case.origin.derived:
        yield from _of_softmax(case, source, log)
    if "sigmoid" in before or case.origin.derived:
        yield from _of_sigmoid(case, source, log)
    yield from _of_complement(case, source, log)


def _of_softmax(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """log(softmax(x)), also with a choice of elements in between: log_softmax commutes with it."""
    values: list[Expression] = []
    inside = in_log_space(case, source, log, log.operand, values)
    if inside is None:
        return
    title = "take the logarithm before the small values are rounded away"
    edit = Edit(source).replace(log.node, source.code(inside)).inline(values)
    if values and (shared := _logits_once(source, log, values, inside)) is not None:
        edit = shared
    yield from case.change(edit, "log_softmax", title, Tier.EXACT)


def _logits_once(
    source: Source, log: Fn, values: list[Expression], inside: Expression
) -> Edit | None:
    """Where the probability is read besides: `logits = net(x)`, so that the model runs once."""
    value = values[-1]
    softmax, line = fn(source, value), source.statement(value)
    target = source.parent(value)
    name = target.targets[0].target if isinstance(target, cst.Assign) else None
    if softmax is None or line is None or not isinstance(name, cst.Name):
        return None
    if not any(isinstance(n, cst.Call) for n in (softmax.operand, *source.below(softmax.operand))):
        return None  # a name: nothing is computed twice
    if all(set(source.ancestors(u)) & {*values} for u in source.other_uses(name.value, log.node)):
        return None
    logits = unused(source, "logits", value)
    old = source.code(softmax.operand)
    text = source.code(inside)
    if text.count(old) != 1:
        return None
    edit = Edit(source).before(line, f"{logits} = {old}")
    return edit.replace(softmax.operand, logits).replace(log.node, text.replace(old, logits))


def in_log_space(
    case: Case, source: Source, log: Fn, node: Expression, values: list[Expression]
) -> Expression | None:
    """The logarithm of a node made of a softmax, seen through choices of elements and variables.

    `values` collects what the variables stand for.
    """
    text = _log_softmax(case, source, node)
    if text is not None:
        return cst.parse_expression(text, config=source.module.config_for_parsing)
    if isinstance(node, cst.Name):
        value = source.value_of(node)
        if value is None:
            return None
        bottom = value
        while (below := _below_view(source, bottom)) is not None:
            bottom = below
        seen_through = bottom if isinstance(bottom, cst.Name) else None
        if not source.means_the_same(value, value, log.node, besides=seen_through):
            return None
        others = [n for n in source.every(cst.Name, value) if n is not bottom]
        if any(n.value == node.value for n in others):
            return None  # `p = p.gather(1, p.argmax(1))`: the name means two things
        values.append(value)
        return in_log_space(case, source, log, value, values)
    below = _below_view(source, node)
    inside = in_log_space(case, source, log, below, values) if below is not None else None
    if below is None or inside is None:
        return None
    whole = node.deep_replace(below, inside)
    return whole if isinstance(whole, Expression) else None


def _below_view(source: Source, node: Expression) -> Expression | None:
    """What an operation takes that only chooses or rearranges elements, or keeps their order."""
    if isinstance(node, cst.Subscript) or (
        isinstance(node, cst.Attribute) and node.attr.value in ("values", "T", "mT")
    ):
        return node.value
    call = fn(source, node)
    return call.operand if call is not None and call.name in VIEWS and not call.inplace else None


def _log_softmax(case: Case, source: Source, node: Expression) -> str | None:
    call = fn(source, node)
    if call is not None and call.name == "softmax":
        return call.rebuilt("log_softmax", _again(source, call))
    recorded = case.upstream_expression("_softmax")  # of a module: `self.softmax(x)`
    if recorded is None or not isinstance(node, cst.Call) or len(node.args) != 1:
        return None
    where, made, op = recorded
    if where.path != source.path or where.start(made) != source.start(node):
        return None
    if not _is_module(source, node.func, "Softmax"):
        return None  # `model(x)`: more than the softmax is in there
    dim = op.scalars.get("dim")
    return f"{source.functional()}.log_softmax({source.code(node.args[0].value)}, dim={dim})"


def _is_module(source: Source, callee: Expression, kind: str) -> bool:
    """Whether all that is ever given to this name is `nn.Softmax(...)`."""
    name = source.code(callee)
    made = [
        assign.value
        for assign in source.every(cst.Assign)
        if any(source.code(target.target) == name for target in assign.targets)
    ]
    return bool(made) and all(
        isinstance(m, cst.Call) and source.code(m.func).split(".")[-1] == kind for m in made
    )


def _of_sigmoid(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    functional = source.functional()
    plain = call_of(source, log.operand, "sigmoid")
    rest = one_minus(log.operand) or one_minus(source.definition(log.operand))
    complement = call_of(source, rest, "sigmoid") if rest is not None else None
    title = "take the logarithm of the sigmoid from its logit, where nothing is rounded to 0"
    if plain is not None:
        text = f"{functional}.logsigmoid({source.code(plain.operand)})"
    elif complement is not None:
        text = f"{functional}.logsigmoid(-{source.receiver(complement.operand)})"
    else:
        return
    edit = Edit(source).replace(log.node, text)
    yield from case.change(edit, "logsigmoid", title, Tier.EXACT)


def _of_complement(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """log(1 - (1 - exp(u))) is u."""
    rest = one_minus(log.operand)
    if rest is None:
        return
    inner = one_minus(rest) or one_minus(source.definition(rest))
    exp = fn(source, inner)
    if exp is not None and exp.name == "exp":
        title = "the logarithm undoes the exponential: use the exponent itself"
        edit = Edit(source).replace(log.node, source.code(exp.operand))
        yield from case.change(edit, "cancel_log_exp", title, Tier.EXACT)


def _again(source: Source, call: Fn) -> str:
    """The operand's text, with parentheses where a method follows."""
    return source.receiver(call.operand) if call.namespace is None else source.code(call.operand)


def _is_given(operand: Operand | None) -> bool:
    """A 0 that nobody computed: of a mask, or of data that are no proportions. It means something."""
    if operand is None or operand.value != 0 or operand.stats is None:
        return False
    if (operand.source or "").startswith("parameter"):
        return False  # it is learnt
    if any(op.name not in GIVEN for op in operand.upstream) or is_count(operand):
        return False
    return is_mask(operand.stats) or (operand.stats.max or 0) > 1


def _weighs_itself(source: Source, log: Fn) -> bool:
    """`p * log(p)`, whose value at 0 is 0 whatever the floor."""
    product = source.parent(log.node)
    return isinstance(product, cst.BinaryOperation) and _is_weighed(source, product, log.operand)


def _xlogy(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """Where no gradient is asked for: its value at 0 is right, its slope there is none."""
    shown = case.anomaly.evidence.sink in ("observed", "output")
    if log.name != "log" or case.origin.phase != "forward" or not (shown or _is_data(case.culprit)):
        return
    code, product = source.code(log.operand), source.parent(log.node)
    text = f"torch.xlogy({code}, {code})"
    difference = binary(product, cst.Subtract)
    if difference is not None and difference.left is log.node:  # `p * (p.log() - log_q)`
        product = source.parent(difference)
        text += f" - {source.receiver(log.operand)} * {source.receiver(difference.right)}"
    if isinstance(product, cst.BinaryOperation) and _is_weighed(source, product, log.operand):
        edit = Edit(source).replace(product, text)
        title = "use `xlogy`, for which 0 times the logarithm of 0 is 0"
        yield from case.change(edit, "xlogy", title, Tier.EXACT)


def _is_data(operand: Operand | None) -> bool:
    """Given from outside, as a teacher's probabilities: no gradient goes there."""
    if operand is None or (operand.source or "").startswith("parameter"):
        return False
    return all(op.name in GIVEN | CASTS for op in operand.upstream)


def _is_weighed(source: Source, product: cst.BinaryOperation, operand: Expression) -> bool:
    sides = (product.left, product.right) if isinstance(product.operator, cst.Multiply) else ()
    return any(source.code(side) == source.code(operand) for side in sides)


def _has_underflowed(case: Case) -> bool:
    """exp(-200) summed: above a floor the logarithm would be a constant, without a slope."""
    makers = case.culprit.upstream if case.culprit is not None else ()
    codes = {cause.code for cause in case.anomaly.finding.causes}
    return "underflow" in codes and any(op.name == "exp" and op.value == 0 for op in makers)


def _floored(case: Case, source: Source, log: Fn) -> Iterator[Candidate]:
    """Guards: the argument is kept above the singular point."""
    operand, argument = case.culprit, log.operand
    yield from _xlogy(case, source, log)
    if log.name in ("log", "log1p") and is_raw_output(case):
        return  # another form of the output is what it wants
    if (_is_given(operand) and not _weighs_itself(source, log)) or _has_underflowed(case):
        return
    known = row(log.name)
    if known.place and log.rest:
        argument = log.rest[0].value
    if log.name == "log" and is_count(operand):
        bound, title = "1", "count at least 1 before taking the logarithm"
    elif known.domain is not None and known.domain.low:
        bound = f"{known.domain.low:g} + {margin(case.dtype)}"
        title = f"keep the argument of {source.quoted(log.node, f'`{log.name}`')} above {known.domain.low:g}"
    else:
        bound = floor(case.dtype)
        title = f"keep the argument of {source.quoted(log.node, f'`{log.name}`')} above 0"
    again = _raised_clamp(source, argument, bound)
    if again is not None:
        yield from case.change(again, "clamp_argument", title, Tier.GUARD)
        return
    if known.domain is not None and not known.domain.low and operand is not None:
        negative = (operand.value or 0) < 0
        for least in ("1e-3",) if negative else ("1e-6", "1e-3"):
            everywhere = _constrained(source, log, argument, least)
            if everywhere is None or not (negative or _divides_too(source, argument)):
                break
            text = "keep this value positive wherever the function uses it"
            yield from case.change(everywhere, "clamp_variable", text, Tier.GUARD)
            if negative:
                return
    twin = _complement_too(source, log, argument)
    if twin is not None and bound == floor(case.dtype):
        yield from case.change(_both_ends(case, source, argument, twin), "clamp_argument", "keep the probability away from 0 and 1, for both logarithms", Tier.GUARD)  # fmt: skip
    clamp = "clamp_" if log.inplace else "clamp"
    edit = Edit(source).replace(argument, f"{source.receiver(argument)}.{clamp}(min={bound})")
    yield from case.change(edit, "clamp_argument", title, Tier.GUARD)


def _divides_too(source: Source, argument: Expression) -> bool:
    """`log(var) + err / var`: a floor for one of them alone is no model of anything."""
    scope = source.scope(argument)
    return any(
        isinstance(q.operator, cst.Divide) and source.same(q.right, argument)
        for q in source.every(cst.BinaryOperation, None if scope is source.module else scope)
    )


def _complement_too(source: Source, log: Fn, argument: Expression) -> Expression | None:
    """`p` of the `log(1 - p)` beside a `log(p)`, or the other way round."""
    p = one_minus(argument) or argument
    scope = source.scope(log.node)
    for call in source.every(cst.Call, None if scope is source.module else scope):
        other = fn(source, call)
        if other is None or other.name != "log" or other.node is log.node or other.inplace:
            continue
        q = one_minus(other.operand) or other.operand
        if (
            isinstance(q, cst.Name)
            and source.same(q, p)
            and (q is other.operand) != (p is argument)
        ):
            return q
    return None


def _both_ends(case: Case, source: Source, argument: Expression, twin: Expression) -> Edit:
    gap, edit = margin(case.dtype), Edit(source)
    for p in (one_minus(argument) or argument, twin):
        edit.replace(p, f"{source.receiver(p)}.clamp({gap}, 1 - {gap})")
    return edit


def _constrained(source: Source, log: Fn, argument: Expression, bound: str) -> Edit | None:
    """A negative variable with other uses is bounded once, before the first of them."""
    line = source.statement(log.node)
    if not isinstance(argument, cst.Name) or line is None or log.inplace:
        return None
    uses = source.other_uses(argument.value, log.node)
    if not uses or min(map(source.start, uses)) < source.start(line):
        return None
    name = argument.value
    return Edit(source).before(line, f"{name} = {name}.clamp(min={bound})")


def _raised_clamp(source: Source, argument: Expression, bound: str) -> Edit | None:
    """A clamp that is already there, with too low a bound, is raised."""
    clamp = made_by(source, argument, "clamp", "clamp_min", "relu")
    low = clamp.argument(0, "min") if clamp is not None else None
    lowest = number_of(low)
    if low is None or lowest is None or lowest > 0:
        return None
    return Edit(source).replace(low, bound)
