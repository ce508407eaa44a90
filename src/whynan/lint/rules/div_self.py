"""Division by a difference that is always 0.

What it catches
    A divisor of the form `x - x`.

Why it hurts
    It is 0 whatever x is: the quotient is NaN or infinite.

Example
    y = x / (x - x)

Use instead
    y = x / (x - x.mean()).abs().clamp(min=1e-6)

When it is fine
    Never; a test that wants NaN says so better with `torch.nan`.
"""

from __future__ import annotations

import ast

from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same, strip, walk_through


@pattern("N010", "div-self", "error", ops=("div",), rank=8, operands=2)
def div_self(term: Term, here: Walker) -> Match | None:
    divisor = strip(term.args[1])
    if divisor.op != "sub" or len(divisor.args) != 2 or number_of(divisor) is not None:
        return None
    if not same(*divisor.args):
        return None
    spelled = {ast.unparse(a.node) for a in divisor.args}
    if len(spelled) > 1 and any("." in words for words in spelled):
        return None  # `self.step - self.last`: what was once the same may have gone on
    if any(t.op.startswith(".") or t.op == "unknown" for t in walk_through(divisor)):
        return None  # `time.time() - start`: what a call gives may be another value each time
    return Match(
        term,
        "the divisor is a value minus itself, which is 0 whatever the value is",
        "subtract what was meant",
        elsewhere="subtract what was meant",
    )
