"""KL divergence written by hand.

What it catches
    `p * log(p / q)` and `p * (log(p) - log(q))` where nothing keeps p and q away from 0.

Why it hurts
    Where p is 0 it is 0 times -inf, which is NaN, though the term's limit is 0. Where q is 0 it is inf.
    A softmax rounds to 0 once two logits differ by 104.

Example
    kl = (p * torch.log(p / q)).sum(-1)

Use instead
    kl = F.kl_div(log_q, p, reduction="none").sum(-1)

When it is fine
    Where both are kept above 0 by a clamp or an eps, and for single numbers.
"""

from __future__ import annotations

from whynan.lint.facts import Sure, is_picked, nonzero, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip

LOGARITHMS = ("log", "log2", "log10")


@pattern("N012", "kl-hand", "warning", ops=("mul",), rank=25, operands=2)
def kl_hand(term: Term, here: Walker) -> Match | None:
    if term.kind == "scalar":
        return None
    for p, other in (term.args, term.args[::-1]):
        parts = _compared(strip(other))
        if parts is None or number_of(p) is not None or not same_values(p, parts[0]):
            continue
        first, second = parts
        if nonzero(first) is Sure.YES and nonzero(second) is Sure.YES:
            return None
        if any(tested(x, here) or is_picked(x) or x.kind == "scalar" for x in parts):
            return None
        return Match(
            term,
            "`p * log(p / q)` is NaN where p is 0, and inf where q is 0",
            'F.kl_div(log_q, p, reduction="none") takes log-probabilities of q and gives 0 where p is 0',
            elsewhere="scipy.special.rel_entr(p, q) gives 0 where p is 0",
            severity="info" if any(strip(x).op == "unknown" for x in parts) else None,
        )
    return None


def _compared(term: Term) -> tuple[Term, Term] | None:
    """The p and q of `log(p / q)` and `log(p) - log(q)`."""
    if term.op in LOGARITHMS and term.args and term.lib != "math":
        ratio = strip(term.args[0])
        return (
            (ratio.args[0], ratio.args[1]) if ratio.op == "div" and len(ratio.args) == 2 else None
        )
    if term.op == "sub" and len(term.args) == 2:
        a, b = (strip(x) for x in term.args)
        logs = all(x.op in LOGARITHMS and x.args and x.lib != "math" for x in (a, b))
        return (a.args[0], b.args[0]) if logs else None
    return None
