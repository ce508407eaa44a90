"""Functions at or beyond the edge of their domain: the argument is kept strictly inside."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.ops.op import Domain
from whynan.ops.table import row
from whynan.repair.calls import Fn, binary, fn, made_by, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import margin
from whynan.repair.source import Expression, Source

TITLE = "keep the argument strictly inside the domain, where the slope is finite too"


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    if case.mechanism not in ("invalid_domain", "gradient_singularity"):
        return
    call = fn(source, node)
    power = binary(node, cst.Power)
    domain = row(call.name).domain if call is not None else None
    if call is not None and domain is not None and _is_interval(call):
        yield from _inside(case, source, call, domain)
    elif power is not None and row(case.forward_op).name == "pow":
        yield from _base(case, source, power.left)
    elif call is not None and row(call.name).name == "pow":
        yield from _base(case, source, call.operand)


def _is_interval(call: Fn) -> bool:
    known = row(call.name)
    return (
        "invalid_domain" in known.fails and known.name != "pow" and "fix" not in (known.lacks or ())
    )


def _inside(case: Case, source: Source, call: Fn, domain: Domain) -> Iterator[Candidate]:
    gap = margin(case.dtype)
    low, high = domain.low, domain.high if math.isfinite(domain.high) else None
    bounds = [f"{low:g} + {gap}" if low else gap]
    bounds += [f"{high:g} - {gap}"] if high is not None else []
    clamp = made_by(source, call.operand, "clamp", "clip")
    if clamp is not None and high is not None:
        given = [clamp.argument(0, "min"), clamp.argument(1, "max")]
        edit, edges = Edit(source), zip(given, bounds, (low, high), strict=True)
        at_an_edge = [(old, new) for old, new, edge in edges if old is not None and number_of(old) == edge]  # fmt: skip
        for old, new in at_an_edge:
            edit.replace(old, new)
        if at_an_edge:
            yield from case.change(edit, "clamp_argument", TITLE, Tier.GUARD)
            return
    arguments = ", ".join(bounds) if high is not None else f"min={bounds[0]}"
    text = f"{source.receiver(call.operand)}.clamp({arguments})"
    edit = Edit(source).replace(call.operand, text)
    yield from case.change(edit, "clamp_argument", TITLE, Tier.GUARD)


def _base(case: Case, source: Source, base: Expression) -> Iterator[Candidate]:
    gap = margin(case.dtype)
    title = "keep the base of the power above 0, where its value and its slope are finite"
    clamp = made_by(source, base, "clamp", "clamp_min")
    low = clamp.argument(0, "min") if clamp is not None else None
    if low is not None and number_of(low) == 0:
        edit = Edit(source).replace(low, gap)
    else:
        edit = Edit(source).replace(base, f"{source.receiver(base)}.clamp(min={gap})")
    yield from case.change(edit, "clamp_base", title, Tier.GUARD)
