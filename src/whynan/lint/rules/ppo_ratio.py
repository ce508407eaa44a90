"""Probability ratio from a difference of log-probabilities.

What it catches
    `exp(logp_new - logp_old)` with a gradient, when the difference is not clamped.

Why it hurts
    After a bad update the difference passes 88 and the ratio is inf. The clipped objective hides
    that: its value is 1.2, but the gradient through `min(ratio * A, ...)` is NaN.

Example
    ratio = torch.exp(new_log_probs - old_log_probs)

Use instead
    ratio = torch.exp((new_log_probs - old_log_probs).clamp(-20.0, 20.0))

When it is fine
    With the difference clamped, and under `no_grad`: nothing is said there.
"""

from __future__ import annotations

import re

from whynan.lint.facts import bounded_above, has_gradient
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, strip

LOGP = re.compile(r"log_?p(rob|i)?s?(_|$)|log_?probs?|logps?$|neglogp", re.I)

OTHER_POLICY = re.compile(r"(^|[_.])(old|prev|behaviou?r|ref|new|cur)(_|$)", re.I)


@pattern("N050", "ppo-ratio", "warning", ops=("exp",), rank=20, operands=1)
def ppo_ratio(term: Term, here: Walker) -> Match | None:
    if not has_gradient(term, here) or term.lib in ("numpy", "math"):
        return None
    difference = strip(term.args[0])
    if difference.op != "sub" or bounded_above(difference):
        return None
    spoken = [any(map(LOGP.search, names_in(a))) for a in difference.args]
    if not any(spoken):
        return None
    if not all(spoken) and not any(map(OTHER_POLICY.search, names_in(difference))):
        return None
    if any(re.search(r"max|lse|norm", n) for n in names_in(difference)):
        return None
    if all(strip(a).op == "detach" or a.op == "detach" for a in difference.args):
        return None
    return Match(
        term,
        "the ratio overflows once the log-probabilities differ by 88; the clipped loss hides it, the gradient is NaN",
        "clamp the difference first: (new - old).clamp(-20.0, 20.0)",
        severity="info",
    )
