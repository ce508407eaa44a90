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

from whynan.lint.facts import has_gradient, is_picked, nonzero, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip

ITS_OWN = ("entr", "xlogy")


@pattern("N012", "p-log-p", "warning", ops=("mul", "einsum", *ITS_OWN), rank=40)
def p_log_p(term: Term, here: Walker) -> Match | None:
    if term.kind == "scalar":
        return None
    if term.op in ITS_OWN:
        return _of_its_own(term, here)
    factors = term.args[-2:] if len(term.args) == (3 if term.op == "einsum" else 2) else ()
    for p, other in (factors, factors[::-1]) if factors else ():
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
            severity="info" if strip(x).op == "unknown" else None,
        )
    return None


def _of_its_own(term: Term, here: Walker) -> Match | None:
    """`entr(p)` and `xlogy(p, p)`, which are 0 at 0 and have no finite slope there."""
    if not term.args or not same_values(term.args[0], term.args[-1]) or nonzero(term.args[0]):
        return None
    if not has_gradient(term, here) or term.lib == "numpy" or tested(term.args[0], here):
        return None
    return Match(
        term,
        f"`{term.op}` has no finite gradient where p is exactly 0, as softmax makes it",
        "compute the entropy from the logits, or clamp p",
        severity="info",
    )
