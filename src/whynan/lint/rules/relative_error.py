"""An error divided by what it is the error of.

What it catches
    `(x - y).abs() / y.abs()` and `abs(x - y) / y`, without an eps or a bound.

Why it hurts
    A target of exactly 0 makes it infinite, a small one huge: one such value decides the mean.

Example
    loss = ((pred - target).abs() / target.abs()).mean()

Use instead
    loss = ((pred - target).abs() / target.abs().clamp(min=1e-3)).mean()

When it is fine
    For targets that are never 0. It is `info` outside of losses.
"""

from __future__ import annotations

import re

from whynan.lint.facts import guarded_divisor, has_gradient
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip

TRAINS = re.compile(r"loss|criterion|objective", re.I)


@pattern("N010", "relative-error", "warning", ops=("div",), rank=40, operands=2)
def relative_error(term: Term, here: Walker) -> Match | None:
    difference, whole = _without_sign(term.args[0]), _without_sign(term.args[1])
    if strip(term.args[0]).op != "abs" or difference.op != "sub" or len(difference.args) != 2:
        return None
    if term.kind == "scalar" or number_of(whole) is not None or here.function is None:
        return None
    if not any(same_values(a, whole) for a in difference.args):
        return None
    if guarded_divisor(term.args[1], here):
        return None
    own = here.reader.own_class
    named = TRAINS.search(f"{here.function.name} {own.name if own is not None else ''}")
    return Match(
        term,
        "a relative error is infinite where the value that it is divided by is 0",
        "keep the divisor away from 0: y.abs().clamp(min=1e-3)",
        elsewhere="keep the divisor away from 0: maximum(abs(y), 1e-3)",
        severity=None if named and has_gradient(term, here) else "info",
    )


def _without_sign(term: Term) -> Term:
    t = strip(term)
    return strip(t.args[0]) if t.op == "abs" and t.args else t
