"""exp(x) - 1.

What it catches
    `exp(x) - 1` and `1 - exp(x)`, in torch, NumPy and math.

Why it hurts
    For small x nearly all digits cancel: at 1e-8 the result is 0 instead of 1e-8.

Example
    growth = torch.exp(rate) - 1

Use instead
    growth = torch.expm1(rate)

When it is fine
    Where it is rounded to a whole number afterwards.
"""

from __future__ import annotations

import re

from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of

ROUNDED = re.compile(r"round|ceil|floor|\.int\(|\.long\(|\bint\(")


@pattern("N071", "expm1", "info", ops=("sub", "add"), fix="sometimes", rank=50, operands=2)
def expm1(term: Term, here: Walker) -> Match | None:
    a, b = term.args
    for e, one, sign in ((a, b, ""), (b, a, "-" if term.op == "sub" else "")):
        # Where a variable lies between, the digits were lost elsewhere.
        if e.op != "exp" or len(e.args) != 1 or number_of(one) != (1 if term.op == "sub" else -1):
            continue
        if number_of(e.args[0]) is not None:
            continue
        if ROUNDED.search(here.source.lines[term.node.lineno - 1]):
            return None
        library = e.lib or {"tensor": "torch", "array": "numpy"}.get(term.kind, "")
        edit = None
        if library:
            edit = call(term, here, f"{library}.expm1", e.args[0], shape=f"{sign}{{}}")
        return Match(
            term,
            f"`{'1 - exp(x)' if sign else 'exp(x) - 1'}` loses its digits for small x: 0 at 1e-8",
            f"{sign}expm1(x)",
            edit=edit,
        )
    return None
