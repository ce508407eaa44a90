"""Entropy written as p times log p.

What it catches
    `p * log(p)` for a p that nothing keeps away from 0.

Why it hurts
    At p = 0 it is 0 times -inf, which is NaN, though the limit is 0. One class with probability 0
    makes the whole sum NaN. `torch.xlogy(p, p)` repairs the value but has a NaN gradient at 0.

Example
    entropy = -(probs * probs.log()).sum(-1)

Use instead
    entropy = -(probs * probs.clamp(min=1e-12).log()).sum(-1)

When it is fine
    Where p cannot be 0: a clamp, an added eps. From logits, `Categorical(logits=x).entropy()` is
    right at every point.
"""

from __future__ import annotations

from whynan.lint.facts import is_picked, nonzero, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip


@pattern("N012", "p-log-p", "warning", ops=("mul",), rank=40, operands=2)
def p_log_p(term: Term, here: Walker) -> Match | None:
    if term.kind == "scalar":
        return None
    for p, other in (term.args, term.args[::-1]):
        log = strip(other)
        if log.op not in ("log", "log2", "log10") or not log.args or log.lib == "math":
            continue
        x = log.args[0]
        if number_of(x) is not None or number_of(p) is not None:
            continue
        if not same_values(p, x) or nonzero(x):  # `log-softmax` and its like speak of these
            continue
        if tested(x, here) or is_picked(x) or x.kind == "scalar":
            return None
        return Match(
            term,
            "`p * log(p)` is NaN where p is exactly 0",
            "clamp p inside the logarithm, or compute the entropy from the logits",
        )
    return None
