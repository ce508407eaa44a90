"""Functions at or beyond the edge of their domain: the argument is kept strictly inside."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, binary, fn, made_by, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import margin
from whynan.repair.source import Expression, Source

INTERVALS = {
    "acos": (-1, 1), "arccos": (-1, 1), "asin": (-1, 1), "arcsin": (-1, 1), "atanh": (-1, 1),
    "arctanh": (-1, 1), "erfinv": (-1, 1), "acosh": (1, None), "arccosh": (1, None),
}  # fmt: skip
TITLE = "keep the argument strictly inside the domain, where the slope is finite too"


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None:
        return
    if case.mechanism not in ("invalid_domain", "gradient_singularity"):
        return
    call = fn(source, node)
    power = binary(node, cst.Power)
    if call is not None and call.name in INTERVALS:
        yield from _inside(case, source, call)
    elif power is not None and case.forward_op in ("pow", "float_power"):
        yield from _base(case, source, power.left)
    elif call is not None and call.name == "pow":
        yield from _base(case, source, call.operand)


def _inside(case: Case, source: Source, call: Fn) -> Iterator[Candidate]:
    gap = margin(case.dtype)
    low, high = INTERVALS[call.name]
    bounds = [f"{low} + {gap}", *([f"{high} - {gap}"] if high is not None else [])]
    clamp = made_by(source, call.operand, "clamp", "clip")
    if clamp is not None and high is not None:
        given = [clamp.argument(0, "min"), clamp.argument(1, "max")]
        if [number_of(g) for g in given] == [low, high]:
            edit = Edit(source)
            for old, new in zip(given, bounds, strict=True):
                if old is not None:
                    edit.replace(old, new)
            yield from case.change(edit, "clamp_argument", TITLE, Tier.GUARD)
            return
    arguments = ", ".join(bounds) if high is not None else f"min={bounds[0]}"
    text = f"{source.receiver(call.operand)}.clamp({arguments})"
    edit = Edit(source).replace(call.operand, text)
    yield from case.change(edit, "clamp_argument", TITLE, Tier.GUARD)


def _base(case: Case, source: Source, base: Expression) -> Iterator[Candidate]:
    gap = margin(case.dtype)
    title = "keep the base of a fractional power above 0, also for the gradient's sake"
    clamp = made_by(source, base, "clamp", "clamp_min")
    low = clamp.argument(0, "min") if clamp is not None else None
    if low is not None and number_of(low) == 0:
        edit = Edit(source).replace(low, gap)
    else:
        edit = Edit(source).replace(base, f"{source.receiver(base)}.clamp(min={gap})")
    yield from case.change(edit, "clamp_base", title, Tier.GUARD)
