"""A learnt quantity that has to be positive and is rounded to 0: kept off it where the network makes it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.model import REFUSED, OpRecord
from whynan.ops.table import that
from whynan.repair.calls import fn
from whynan.repair.case import HALF, Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.exponentials import LAYERS

MECHANISMS = ("division_by_zero", "log_nonpositive", "invalid_domain", "gradient_singularity")
FORWARD = ("division_by_zero", "log_nonpositive")
POSITIVE = ("softplus", "relu", "elu")
KEEPS = that("keeps")
BETWEEN = that("keeps") | {"div", "mul"}
SOFTPLUS = "let the network predict what is positive by its form: a bound would stop the gradient where it matters"
TITLE = "keep this positive where the network makes it: as a scale or rate it must not round to 0"


def propose(case: Case) -> Iterator[Candidate]:
    yield from _refused(case)
    yield from _made_positive(case)
    yield from _floored(case)


def is_raw_output(case: Case) -> bool:
    """Whether a layer's output itself is negative where it must not be: a bound would stop its
    gradient there, and what it predicts would be the bound."""
    return case.culprit is not None and (case.culprit.value or 0) < 0 and _layer(case) is not None


def _layer(case: Case) -> OpRecord | None:
    for op in case.culprit.upstream if case.culprit is not None else ():
        if op.name in LAYERS:
            return op
        if op.name not in KEEPS:
            return None
    return None


def _made_positive(case: Case) -> Iterator[Candidate]:
    """A rate that a network predicts: `F.softplus(net(x)) + 1e-6`."""
    op = _layer(case) if case.mechanism == "log_nonpositive" and is_raw_output(case) else None
    if (
        op is None
        or op.site is None
        or case.forward_op not in ("log", "log1p")
        or not case.is_own(op.site.file)
    ):
        return
    source = case.source_of(op.site.file)
    node = source.expression_at(op.site) if source is not None else None
    if source is None or node is None:
        return
    edit = Edit(source).replace(node, f"{source.functional()}.softplus({source.code(node)}) + 1e-6")
    yield from case.change(edit, "softplus_output", SOFTPLUS, Tier.GUARD)


def _refused(case: Case) -> Iterator[Candidate]:
    """`Normal(loc(h), 1 + scale(h))`, `Dirichlet(torch.relu(net(x)))`: a distribution needs it above 0."""
    source, call, operand = case.source, case.node, case.origin.inputs[:1]
    if case.forward_op != REFUSED or source is None or not isinstance(call, cst.Call):
        return
    if case.origin.scalars.get("needs") != "above 0" or not any(
        op.name in LAYERS for op in operand[0].upstream
    ):
        return
    for arg in call.args:
        text = source.code(arg.value)
        if text.replace(" ", "") != (operand[0].name or "").replace(" ", ""):
            continue
        made = fn(source, source.value_of(arg.value) or arg.value)
        node, inner = arg.value, text
        if made is not None and made.name in ("relu", "abs") and not made.inplace:
            node, inner = made.node, source.code(made.operand)
        edit = Edit(source).replace(node, f"{source.functional()}.softplus({inner}) + 1e-3")
        yield from case.change(edit, "softplus_output", SOFTPLUS, Tier.GUARD)


def _floored(case: Case) -> Iterator[Candidate]:
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
        nearest = next((later.name for later in makers[place + 1 :] if later.name not in KEEPS), "")
        if op.name == "relu" and (nearest not in LAYERS or case.mechanism not in FORWARD):
            return  # a gate that is meant to close
        if op.name == "relu":
            text = call.rebuilt(
                "softplus", source.code(call.operand), namespace=source.functional()
            )
            edit = Edit(source).replace(node, f"{text} + 1e-4")
            yield from case.change(edit, "softplus_output", SOFTPLUS, Tier.GUARD)
            return
        edit = Edit(source).replace(node, f"{source.code(node)} + 1e-3")
        yield from case.change(edit, "positive_floor", TITLE, Tier.GUARD)
        return
