"""Standardising by a standard deviation that may be 0.

What it catches
    `(x - x.mean()) / x.std()` without an eps.

Why it hurts
    A constant feature, an all-equal batch of rewards or a single element has a deviation of 0 or NaN,
    and the result is NaN.

Example
    adv = (adv - adv.mean()) / adv.std()

Use instead
    adv = (adv - adv.mean()) / (adv.std(correction=0) + 1e-5)

When it is fine
    With an eps: at least 1e-5, because rounding alone makes the deviation of a constant 0.1 about
    7.5e-9. `correction=0` keeps a single element at 0 instead of NaN.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor, says
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import same_values, strip
from whynan.lint.vanishing import is_generic

# What is made anew for each update, and is all equal now and then; features of a data set rarely are.
TRAINED_ON = r"adv|return|reward|gae|delta|loss|grad|score"


@pattern("N010", "div-std", "warning", ops=("div",), rank=10, operands=2)
def div_std(term: Term, here: Walker) -> Match | None:
    x = _spread_of(strip(term.args[1]))
    if x is None or guarded_divisor(term.args[1], here) or is_generic(x):
        return None
    top = strip(term.args[0])
    scaled = (term.args[0], top.args[0]) if top.op == "sub" else (term.args[0],)
    if not any(same_values(s, x) for s in scaled):
        return None
    return Match(
        term,
        "dividing by `std` gives NaN for a constant input or a single element",
        "add an eps of at least 1e-5 to the deviation, and use correction=0 for small batches",
        elsewhere="add an eps of at least 1e-5 to the deviation",
        severity=None if says(x, TRAINED_ON) else "info",
    )


def _spread_of(term: Term) -> Term | None:
    """The x of `x.std()`, of `x.var().sqrt()` and of the first that `torch.std_mean(x)` gives."""
    inner = strip(term.args[0]) if term.args else term
    is_root = term.op == "sqrt" and inner.op == "var"
    is_first = term.op == "piece" and term.value == 0 and inner.op == "std"
    if is_root or is_first:
        return inner.args[0] if inner.args else None
    return term.args[0] if term.op == "std" and term.args else None
