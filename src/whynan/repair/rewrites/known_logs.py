"""Values whose logarithm torch has a function for."""

from __future__ import annotations

import libcst as cst

from whynan.repair.calls import binary, fn, is_one, one_minus
from whynan.repair.source import Expression, Source


def known_log(source: Source, node: Expression) -> str | None:
    """Of exp, softmax, sigmoid, and the sums and differences with 1 that have a name."""
    functional = source.functional()
    rest, call = one_minus(node), fn(source, node)
    inner = fn(source, rest) or fn(source, source.definition(rest) if rest is not None else None)
    if inner is not None and inner.name == "sigmoid":
        return f"{functional}.logsigmoid(-{source.receiver(inner.operand)})"
    if (raised := one_plus_exp(source, node)) is not None:
        return f"{functional}.softplus({raised})"
    if call is None or call.inplace:
        return None
    if call.name == "exp":
        return source.code(call.operand)
    if call.name == "sigmoid":
        return f"{functional}.logsigmoid({source.code(call.operand)})"
    if call.name == "softmax":
        named = call.namespace is not None
        operand = source.code(call.operand) if named else source.receiver(call.operand)
        return call.rebuilt("log_softmax", operand)
    return None


def one_plus_exp(source: Source, node: Expression) -> str | None:
    """u of `1 + exp(u)`."""
    plus = binary(node, cst.Add)
    for one, other in ((plus.left, plus.right), (plus.right, plus.left)) if plus else ():
        exp = fn(source, other) or fn(source, source.definition(other))
        if is_one(one) and exp is not None and exp.name == "exp":
            return source.code(exp.operand)
    return None
