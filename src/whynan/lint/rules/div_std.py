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

from whynan.lint.facts import guarded_divisor, is_generic, says
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import same_values, strip

# What is made anew for each update, and is all equal now and then; features of a data set rarely are.
TRAINED_ON = r"adv|return|reward|gae|delta|loss|grad|score"


@pattern("N010", "div-std", "warning", ops=("div",), rank=10, operands=2)
def div_std(term: Term, here: Walker) -> Match | None:
    std = strip(term.args[1])
    if std.op != "std" or not std.args or guarded_divisor(term.args[1], here):
        return None
    if is_generic(std.args[0]):
        return None
    top = strip(term.args[0])
    scaled = top.args[0] if top.op == "sub" else term.args[0]
    if not same_values(scaled, std.args[0]):
        return None
    return Match(
        term,
        "dividing by `std` gives NaN for a constant input or a single element",
        "add an eps of at least 1e-5 to the deviation, and use correction=0 for small batches",
        elsewhere="add an eps of at least 1e-5 to the deviation",
        severity=None if says(std.args[0], TRAINED_ON) else "info",
    )
