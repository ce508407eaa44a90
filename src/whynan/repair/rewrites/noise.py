"""Gumbel noise from uniform numbers, which may be exactly 0 or 1: drawn as an exponential instead."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, fn, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

MAX_EPS = 1e-3
DRAWS = {"rand": "empty", "rand_like": "empty_like"}
TITLE = "draw the noise from an exponential, which is never 0: the same distribution"


def propose(case: Case) -> Iterator[Candidate]:
    """-log(-log(u)) of a uniform u is -log(e) of an exponential e."""
    source, node = case.source, case.node
    if source is None or node is None or case.forward_op != "log":
        return
    scope = source.scope(node)
    for call in source.every(cst.Call, None if scope is source.module else scope):
        inlined: list[Expression] = []
        logs = _two_logarithms(source, call, inlined)
        if logs is None or node not in logs[:2]:
            continue
        drawn = _drawn(source, logs[2], call, inlined)
        if drawn is not None:
            edit = Edit(source).replace(call, f"{drawn}.log()").inline(inlined)
            yield from case.change(edit, "exponential_noise", TITLE, Tier.EXACT)


def _two_logarithms(
    source: Source, call: cst.Call, inlined: list[Expression]
) -> tuple[Expression, Expression, Expression] | None:
    """Of `log(-log(u))`, perhaps with an eps: both calls, and u."""
    outer = fn(source, call)
    if outer is None or outer.name != "log" or outer.inplace:
        return None
    negative = _bare(source, outer.operand, inlined)
    if not isinstance(negative, cst.UnaryOperation) or not isinstance(negative.operator, cst.Minus):
        return None
    inner = fn(source, _seen(source, negative.expression, inlined))
    if inner is None or inner.name != "log" or inner.inplace:
        return None
    return outer.node, inner.node, _bare(source, inner.operand, inlined)


def _drawn(source: Source, u: Expression, there: cst.Call, inlined: list[Expression]) -> str | None:
    """`torch.rand(...)` as memory of that shape and type, filled with exponentials."""
    u = _seen(source, one_minus(u) or u, inlined)
    call = u if isinstance(u, cst.Call) else None
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    if not source.means_the_same(call, call, there):
        return None
    name, owner = call.func.attr.value, call.func.value
    if name == "uniform_" and not call.args:  # `torch.empty(...).uniform_()`
        return f"{source.code(owner)}.exponential_()"
    if name not in DRAWS or source.code(owner) != (source.torch_name() or "torch"):
        return None
    kept, generator = [], ""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "generator":
            generator = source.code(arg).rstrip(", ")
        else:
            kept.append(source.code(arg).rstrip(", \n"))
    return f"torch.{DRAWS[name]}({', '.join(kept)}).exponential_({generator})"


def _seen(source: Source, node: Expression, inlined: list[Expression]) -> Expression:
    """What a variable stands for."""
    value = source.definition(node)
    if value is None:
        return node
    inlined.append(value)
    return value


def _bare(source: Source, node: Expression, inlined: list[Expression]) -> Expression:
    """Without an eps, whether it is added here or where the variable is made."""
    return without_eps(_seen(source, without_eps(node), inlined))


def without_eps(node: Expression) -> Expression:
    """`x` of `x + 1e-8`."""
    plus = binary(node, cst.Add)
    if plus is None:
        return node
    for eps, rest in ((plus.right, plus.left), (plus.left, plus.right)):
        number = number_of(eps)
        if number is not None and 0 < number <= MAX_EPS:
            return rest
        if isinstance(eps, cst.Name) and "eps" in eps.value.lower():
            return rest
    return node
