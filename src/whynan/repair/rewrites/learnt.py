"""A learnt quantity that has to be positive and is rounded to 0: kept off it where the network makes it."""

from __future__ import annotations

from collections.abc import Iterator

from whynan.ops.table import that
from whynan.repair.calls import fn
from whynan.repair.case import HALF, Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.exponentials import LAYERS

MECHANISMS = ("division_by_zero", "log_nonpositive", "invalid_domain", "gradient_singularity")
POSITIVE = ("softplus", "relu", "elu")
BETWEEN = that("keeps") | {"div", "mul"}
TITLE = "keep this positive where the network makes it: as a scale or rate it must not round to 0"


def propose(case: Case) -> Iterator[Candidate]:
    """`F.softplus(raw) + 1e-3`."""
    if case.mechanism not in MECHANISMS or case.culprit is None or case.dtype in HALF:
        return
    makers = case.culprit.upstream
    for place, op in enumerate(makers):
        if op.name in BETWEEN:
            continue
        learnt = any(later.name in LAYERS for later in makers[place + 1 :])
        if op.name not in POSITIVE or op.value != 0 or not learnt or op.site is None:
            return
        source = case.source_of(op.site.file) if case.is_own(op.site.file) else None
        node = source.expression_at(op.site) if source is not None else None
        call = fn(source, node) if source is not None else None
        if source is None or node is None or call is None or call.name != op.name or call.inplace:
            return
        edit = Edit(source).replace(node, f"{source.code(node)} + 1e-3")
        yield from case.change(edit, "positive_floor", TITLE, Tier.GUARD)
        return
