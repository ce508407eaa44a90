"""Fractional power of a tensor that may be 0 or negative.

What it catches
    `x ** 0.5`, `x.pow(0.2)`, `x ** -0.5` of a torch value that nothing keeps above 0.

Why it hurts
    A negative base is NaN; at 0 the gradient of a power below 1 is infinite, and a negative power
    itself is.

Example
    y = torch.relu(x) ** 0.4

Use instead
    y = torch.relu(x).clamp(min=1e-12) ** 0.4

When it is fine
    For Python numbers (`head_dim ** -0.5`), whole exponents, schedules, and without gradients.
"""

from __future__ import annotations

import re

from whynan.lint.belonging import is_torch
from whynan.lint.facts import SCHEDULE, Sure, has_gradient, is_square, nonzero, says, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, number_of, strip
from whynan.lint.vanishing import distance
from whynan.ops.table import row


@pattern("N021", "frac-pow", "warning", ops=("pow",), rank=30)
def frac_pow(term: Term, here: Walker) -> Match | None:
    exponent = term.const("exponent")
    if len(term.args) != 2 or not isinstance(exponent, float) or exponent.is_integer():
        return None
    x = term.args[0]
    if not is_torch(x, here) or not has_gradient(term, here) or tested(x, here):
        return None
    base = strip(x)
    degrees = exponent < 0 and base.op == "sum" and says(x, r"deg|adj")
    if not (_may_vanish(base.op) or degrees) or any(SCHEDULE.search(n) for n in names_in(x)):
        return None
    zero_floor = base.op in ("clamp", "clamp_min") and base.const("min") == 0
    if not zero_floor and nonzero(x) is Sure.YES:
        return None
    if exponent < 0 and re.search(r"isinf|inf\b|nan_to_num", here.body):
        return None
    return Match(
        term,
        f"a power of {exponent:g} is NaN below 0 and has an infinite "
        f"{'value' if exponent < 0 else 'gradient'} at 0",
        "keep the base above 0: x.clamp(min=1e-12)",
        severity=None if exponent < 1 and _is_computed(base) and not nonzero(x) else "info",
    )


def _is_computed(base: Term) -> bool:
    """Not what may be a number, as in `1 - bn.momentum`, nor a length that is never 0."""
    parts = [strip(a) for a in base.args if number_of(a) is None]
    if base.op == "sub" and len(parts) == 1 and parts[0].kind == "?":
        return False
    squared = is_square(base.args[0]) if base.op in ("sum", "mean") and base.args else None
    return squared is None or distance(squared)


def _may_vanish(op: str) -> bool:
    """What may be 0 or negative by the way it is made; of a bare variable nothing is known."""
    known = row(op)
    if "random" in known.does:
        return known.range is None
    reaches = known.range is not None and (0 in known.range or 0 in known.rounds)
    return reaches or "floor" in known.does or op in ("sub", "sum", "mean", "layer")
