"""Logarithm of what was cut off at 0.

What it catches
    `log` of a relu, of a `clamp(min=0)` or of `maximum(x, 0)`.

Why it hurts
    Everything below 0 was made exactly 0, whose logarithm is -inf; its gradient is 0 times inf, which
    is NaN. About half of the values of an untrained layer are below 0.

Example
    rate = torch.log(F.relu(x))

Use instead
    rate = torch.log(F.softplus(x) + 1e-6)

When it is fine
    With an eps added after the cut, or a bound above 0.
"""

from __future__ import annotations

import re

from whynan.lint.facts import tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, strip, walk_through

SPECTRUM = re.compile(r"fft|stft")


@pattern("N012", "log-relu", "error", ops=("log", "log2", "log10"), rank=20)
def log_relu(term: Term, here: Walker) -> Match | None:
    if not term.args or term.kind == "scalar" or tested(term.args[0], here):
        return None
    cut = strip(term.args[0])
    if cut.op == "abs" and any(SPECTRUM.search(t.op) for t in walk_through(cut, 6)):
        return Match(
            term,
            f"`{term.op}` of a magnitude is -inf where a frequency is silent, and its gradient NaN",
            "add a small eps or bound it: .clamp(min=1e-5)",
            elsewhere="bound it above 0: maximum(x, 1e-5)",
            severity="warning",
        )
    if not _is_cut_at_zero(cut):
        return None
    return Match(
        term,
        f"`{term.op}` of what `{cut.op}` made 0 is -inf, and its gradient NaN",
        "bound it above 0: .clamp(min=1e-6), or use softplus, which stays positive",
        elsewhere="bound it above 0: maximum(x, 1e-6)",
    )


def _is_cut_at_zero(term: Term) -> bool:
    if term.op == "relu":
        return True
    if term.op in ("clamp", "clamp_min"):
        return term.const("min") == 0
    return (
        term.op == "maximum" and len(term.args) == 2 and any(number_of(a) == 0 for a in term.args)
    )
