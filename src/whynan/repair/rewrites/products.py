"""Products of many factors whose logarithm is taken: the sum of the logarithms."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, call_of, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.logarithms import in_log_space
from whynan.repair.source import Expression, Source

SUMS = {"prod": "sum", "cumprod": "cumsum"}
MECHANISMS = ("log_nonpositive", "overflow", "gradient_singularity")
TITLE = "add the logarithms: the product of many factors does not fit into the type"


def propose(case: Case) -> Iterator[Candidate]:
    """log(prod(p)) is the sum of log(p)."""
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    scope = source.scope(node)
    for call in source.every(cst.Call, None if scope is source.module else scope):
        log = fn(source, call)
        if log is None or log.name != "log" or log.inplace or log.rest:
            continue
        product = call_of(source, log.operand, *SUMS)
        if product is None or node not in (log.node, product.node) or product.inplace:
            continue
        if source.means_the_same(product.operand, product.node, log.node) and _is_positive(case):
            yield from _summed(case, source, log, product)


def _summed(case: Case, source: Source, log: Fn, product: Fn) -> Iterator[Candidate]:
    values: list[Expression] = []
    inside = in_log_space(case, source, log, product.operand, values)
    if inside is not None:  # of chosen values of a softmax
        yield from _changed(case, source, log, product, source.code(inside), values)
    if log.namespace is None:
        plain = f"{source.receiver(product.operand)}.log()"
    else:
        plain = f"{log.namespace}{'.' if log.namespace else ''}log({source.code(product.operand)})"
    yield from _changed(case, source, log, product, plain, [])


def _changed(
    case: Case, source: Source, log: Fn, product: Fn, logarithms: str, values: list[Expression]
) -> Iterator[Candidate]:
    rest = ", ".join(source.code(a).rstrip(", \n") for a in product.rest)
    text = f"{logarithms}.{SUMS[product.name]}({rest})"
    title = TITLE if not values else f"{TITLE}; and take them before small values are rounded away"
    edit = Edit(source).replace(log.node, text).inline(values)
    yield from case.change(edit, "sum_of_logs", title, Tier.EXACT)


def _is_positive(case: Case) -> bool:
    """Two negative factors have a positive product, but no logarithms."""
    ops = [case.origin, *(op for operand in case.origin.inputs for op in operand.upstream)]
    made = next((op for op in ops if op.name in SUMS), None)
    stats = made.inputs[0].stats if made is not None and made.inputs else None
    return stats is None or stats.min is None or stats.min >= 0
