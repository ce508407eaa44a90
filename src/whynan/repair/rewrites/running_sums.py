"""Running sums of exponentials whose logarithm is taken: the function that stays in log space."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import call_of, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit

MECHANISMS = ("overflow", "log_nonpositive", "gradient_singularity")


def propose(case: Case) -> Iterator[Candidate]:
    """log(cumsum(exp(x), dim)) is logcumsumexp(x, dim)."""
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    scope = source.scope(node)
    for call in source.every(cst.Call, None if scope is source.module else scope):
        log = fn(source, call)
        if log is None or log.name != "log" or log.inplace or log.rest:
            continue
        total = call_of(source, log.operand, "cumsum")
        exp = call_of(source, total.operand, "exp") if total is not None else None
        if total is None or exp is None or node not in (log.node, total.node, exp.node):
            continue
        if total.inplace or exp.inplace or len(total.rest) != 1:
            continue  # a dtype is no argument of `logcumsumexp`
        if not source.means_the_same(exp.operand, exp.node, log.node):
            continue
        text = total.rebuilt("logcumsumexp", source.code(exp.operand), namespace="torch")
        title = "sum in log space: `logcumsumexp` neither overflows nor rounds to 0"
        edit = Edit(source).replace(log.node, text)
        yield from case.change(edit, "logcumsumexp", title, Tier.EXACT)
