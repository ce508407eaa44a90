"""Logarithm of a hyperbolic cosine.

What it catches
    `log(cosh(x))` where nothing bounds x.

Why it hurts
    cosh overflows at 89 in float32 (11.8 in float16), though the result is only about |x|. An error of
    100 in a regression is enough for a loss of inf.

Example
    loss = torch.log(torch.cosh(y - x)).mean()

Use instead
    loss = (torch.abs(y - x) + F.softplus(-2 * torch.abs(y - x)) - math.log(2)).mean()

When it is fine
    Where x is bounded, as behind a tanh.
"""

from __future__ import annotations

from whynan.lint.facts import bounded_above, has_gradient
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip
from whynan.lint.training import trains


@pattern("N050", "log-cosh", "error", ops=("log",), rank=10)
def log_cosh(term: Term, here: Walker) -> Match | None:
    cosh = strip(term.args[0]) if term.args else term
    if cosh.op != "cosh" or not cosh.args or term.kind == "scalar" or bounded_above(cosh.args[0]):
        return None
    return Match(
        term,
        "`log(cosh(x))` is inf once |x| exceeds 89 (float16: 11.8), though it is only about |x|",
        "|x| + softplus(-2 |x|) - log(2), which is whynan.stable.log_cosh",
        elsewhere="|x| + log1p(exp(-2 |x|)) - log(2)",
        severity=None if trains(here) and has_gradient(term, here) else "info",
    )
