"""log(1 + x).

What it catches
    `log(1 + x)` and `log(1 - x)`, in torch, NumPy and math.

Why it hurts
    1 + x drops the digits of a small x: at 1e-8 the result is 0 instead of 1e-8.

Example
    y = torch.log(1 + x)

Use instead
    y = torch.log1p(x)

When it is fine
    For whole numbers such as counts: nothing is said about what is called one.
"""

from __future__ import annotations

import re

from whynan.lint.facts import is_eps, one_minus, one_plus, says
from whynan.lint.rewrite import call, negated, text
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip

COUNTS = r"count|num|len|idx|index|arange|freq|degree|(^|_)n($|_)|size|step|total|rank|pos|epoch|dim|max_|shape|length"
OTHERS = ("exp", "sigmoid", "softmax")


@pattern("N072", "log1p", "info", ops=("log",), fix="sometimes", rank=60, operands=1)
def log1p(term: Term, here: Walker) -> Match | None:
    total = term.args[0]
    if total.op not in ("add", "sub"):
        return None  # where a variable lies between, the digits were lost elsewhere
    minus = one_minus(total)
    x = minus if minus is not None else one_plus(total)
    if x is None or is_eps(x) or strip(x).op in OTHERS or says(x, COUNTS):
        return None
    if re.search(COUNTS, text(x, here)) or strip(x).op in ("arange", "bincount", "builtin"):
        return None
    library = term.lib or {"tensor": "torch", "array": "numpy"}.get(term.kind, "")
    edit = None
    if library:
        inside = negated(x, here) if minus is not None else text(x, here)
        edit = call(term, here, f"{library}.log1p", inside, uses=[x])
    sign = "-" if minus is not None else ""
    return Match(
        term,
        f"`log(1 {sign or '+'} x)` loses the digits of a small x: 0 at 1e-8",
        f"log1p({sign}x)",
        edit=edit,
    )
