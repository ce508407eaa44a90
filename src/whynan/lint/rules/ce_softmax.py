"""Softmax before a loss that applies it again.

What it catches
    `cross_entropy` of a softmax and `binary_cross_entropy_with_logits` of a sigmoid: in one
    expression, through variables, `nn.Sequential`, attributes and the `forward` of a model here.

Why it hurts
    The loss takes logits. Given probabilities it applies softmax twice: with 10 classes the loss
    cannot fall below 1.461, and for a confident wrong answer the gradient is 1e-13.

Example
    loss = F.cross_entropy(F.softmax(logits, dim=-1), target)

Use instead
    loss = F.cross_entropy(logits, target)

When it is fine
    Never. `cross_entropy(log_softmax(x))` is right, because log_softmax of it changes nothing.
"""

from __future__ import annotations

from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip

TWICE = {"cross_entropy": "softmax", "binary_cross_entropy_with_logits": "sigmoid"}


@pattern("N061", "ce-softmax", "error", ops=tuple(TWICE), rank=10)
def ce_softmax(term: Term, here: Walker) -> Match | None:
    if not term.args or term.form == "method":
        return None
    inner = strip(term.args[0])
    if inner.op != TWICE[term.op]:
        return None
    return Match(
        term,
        f"`{term.op}` applies {inner.op} itself; given {'probabilities' if inner.op == 'softmax' else 'a sigmoid'} it trains on a squashed copy and hardly learns",
        f"pass the logits: drop the {inner.op}",
    )
