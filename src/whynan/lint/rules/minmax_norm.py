"""Scaling to a range that may be empty.

What it catches
    `(x - x.min()) / (x.max() - x.min())` without an eps or a clamp.

Why it hurts
    A constant input has a range of 0: 0 / 0 is NaN everywhere.

Example
    scaled = (x - x.min()) / (x.max() - x.min())

Use instead
    scaled = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)

When it is fine
    With an eps, a clamp, or an `if` on the range: nothing is said there.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import same_values, strip
from whynan.lint.vanishing import is_generic

LOW, HIGH = ("min", "amin"), ("max", "amax")


@pattern("N010", "minmax-norm", "info", ops=("div",), rank=10, operands=2)
def minmax_norm(term: Term, here: Walker) -> Match | None:
    top, bottom = strip(term.args[0]), strip(term.args[1])
    if top.op != "sub" or bottom.op != "sub" or guarded_divisor(term.args[1], here):
        return None
    x, low = top.args[0], _reduced(top.args[1], LOW)
    high, low_again = _reduced(bottom.args[0], HIGH), _reduced(bottom.args[1], LOW)
    if low is None or high is None or low_again is None:
        return None
    if not all(same_values(x, y) for y in (low, high, low_again)):
        return None
    if is_generic(x):
        return None
    return Match(
        term,
        "scaling by `max - min` is 0 / 0 = NaN for a constant input",
        "keep the range above 0: (x.max() - x.min()).clamp(min=1e-12)",
        elsewhere="keep the range above 0: maximum(x.max() - x.min(), 1e-12)",
    )


def _reduced(term: Term, ops: tuple[str, ...]) -> Term | None:
    t = strip(term)
    if t.op in ("piece", "attr") and t.args:  # values of `x.min(dim)`
        made = strip(t.args[0])
        if made.op == "aminmax" and made.args:
            return made.args[0] if t.value == (0 if ops is LOW else 1) else None
        t = made
    return t.args[0] if t.op in ops and t.args and t.form in ("method", "call") else None
