"""An exponential that something cuts off above: the exponent is cut off instead.

`torch.minimum(one, torch.exp(d))` has a finite value, but the infinity that it did not choose has a
gradient of 0 times infinity.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import Fn, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.source import Expression, Source

MECHANISMS = ("overflow", "gradient_singularity", "zero_times_inf", "nan_literal")
MINIMA = ("minimum", "min", "fmin")
CLAMPS = ("clamp", "clip", "clamp_max")
TITLE = (
    "cut off the exponent, not the exponential: the infinity that is not chosen has a gradient, too"
)


def propose(case: Case) -> Iterator[Candidate]:
    source = case.source
    exp = fn(source, case.node) if source is not None else None
    if source is None or case.mechanism not in MECHANISMS or exp is None or exp.name != "exp":
        return
    for place in _places(source, exp):
        found = _ceiling(source, place)
        if found is None:
            continue
        whole, top = found
        bound = "0" if top == 1 else f"math.log({top:g})"
        inner = f"{source.receiver(exp.operand)}.clamp(max={bound})"
        text = f"{inner}.exp()" if exp.namespace is None else exp.rebuilt("exp", inner)
        edit = Edit(source).replace(whole, text)
        if place is not exp.node:
            edit.inline([exp.node])
        yield from case.change(edit, "clamp_before_exp", TITLE, Tier.EXACT)
        return


def _places(source: Source, exp: Fn) -> Iterator[Expression]:
    """The exponential itself, or the one read of the variable that it was given to."""
    yield exp.node
    above = source.parent(exp.node)
    target = above.targets[0].target if isinstance(above, cst.Assign) else None
    if isinstance(target, cst.Name):
        uses = source.other_uses(target.value, exp.node)
        if len(uses) == 1 and source.definition(uses[0]) is exp.node:
            yield uses[0]


def _ceiling(source: Source, node: Expression) -> tuple[Expression, float] | None:
    """The `minimum` or `clamp` that a value goes into, and its bound."""
    above = source.parent(node)
    call = fn(source, source.parent(above)) if isinstance(above, (cst.Arg, cst.Attribute)) else None
    if call is None or call.inplace:
        return None
    if call.name in MINIMA and len(call.rest) == 1:
        other = call.rest[0].value if call.operand is node else call.operand
        bound = _constant(source, other)
        return (call.node, bound) if bound is not None and bound > 0 else None
    if call.name in CLAMPS and call.operand is node:
        low = None if call.name == "clamp_max" else call.argument(0, "min")
        high = call.argument(0 if call.name == "clamp_max" else 1, "max")
        bound = number_of(high)
        if bound is None or bound <= 0 or (number_of(low) or 0) > 0:
            return None
        return call.node, bound
    return None


def _constant(source: Source, node: Expression) -> float | None:
    """1 of `torch.ones_like(x)`, c of `torch.tensor(c)`."""
    node = source.definition(node) or node
    name = source.code(node.func).split(".")[-1] if isinstance(node, cst.Call) else ""
    if name in ("ones", "ones_like"):
        return 1.0
    if name in ("tensor", "full_like", "full", "as_tensor") and isinstance(node, cst.Call):
        given = node.args[0] if name in ("tensor", "as_tensor") else node.args[1]
        return number_of(given.value)
    return number_of(node)
