"""Logarithm of one minus a sigmoid.

What it catches
    `log(1 - sigmoid(x))` and `log1p(-sigmoid(x))`, also with a small eps added.

Why it hurts
    sigmoid rounds to exactly 1 at 17 in float32 (8 in float16, 7 in bfloat16), an ordinary logit.
    The logarithm of the difference is then -inf and its gradient NaN.

Example
    loss = -torch.log(1 - torch.sigmoid(score)).mean()

Use instead
    loss = -F.logsigmoid(-score).mean()

When it is fine
    Never better than `logsigmoid(-x)`.
"""

from __future__ import annotations

from whynan.lint.facts import (
    has_gradient,
    log_of_one_minus,
    one_minus,
    small_eps_added,
)
from whynan.lint.rewrite import call, negated
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import known_small, resolve, strip
from whynan.lint.training import of_eps


@pattern("N012", "log1m-sigmoid", "error", ops=("log", "log1p"), fix="sometimes", rank=10)
def log1m_sigmoid(term: Term, here: Walker) -> Match | None:
    if not term.args or term.kind == "array":
        return None
    inner, eps = small_eps_added(term.args[0])
    rest = log_of_one_minus(term, inner)
    if rest is None and not eps and term.op == "log":
        rest = _eps_first(term.args[0])
        eps = rest is not None
    sigmoid = strip(rest) if rest is not None else None
    if sigmoid is None or sigmoid.op != "sigmoid" or not sigmoid.args or rest is None:
        return None
    if eps and not has_gradient(term, here):
        return None
    edit = None
    x = sigmoid.args[0]
    direct = resolve(rest) is sigmoid and sigmoid.form in ("call", "method")
    if direct:
        edit = call(term, here, "torch.nn.functional.logsigmoid", negated(x, here), uses=[x])
    return Match(
        term,
        "`log(1 - sigmoid(x))`: the added eps stops the gradient above about 18"
        if eps
        else "`log(1 - sigmoid(x))` is -inf with a NaN gradient from x = 17 on (bfloat16: 7)",
        "F.logsigmoid(-x) is the same value, exact for every x",
        edit=edit if not eps or known_small(term.args[0]) else None,
        severity=of_eps(here) if eps else None,
    )


def _eps_first(term: Term) -> Term | None:
    """`1 - s + eps` is `(1 - s) + eps`; `1 + eps - s` is not."""
    t = strip(term)
    if t.op == "sub":
        base, eps = small_eps_added(t.args[0])
        if eps and one_minus(Term("sub", t.node, (base, t.args[1]))) is not None:
            return t.args[1]
    return None
