"""Product of many probabilities.

What it catches
    `log(prod(x))`, `prod` of a softmax or a sigmoid, and, as info, `prod` of something that is called a
    probability.

Why it hurts
    0.9 to the 1000 is 0 in float32: the product underflows and its logarithm is -inf.

Example
    loglik = torch.log(torch.prod(probs, dim=-1))

Use instead
    loglik = torch.log(probs).sum(dim=-1)

When it is fine
    For products of a few factors, of shapes and of grid sizes.
"""

from __future__ import annotations

from whynan.lint.facts import says
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip


@pattern("N012", "prod-probs", "warning", ops=("log", "prod", "cumprod"), rank=20)
def prod_probs(term: Term, here: Walker) -> Match | None:
    if not term.args or term.kind == "scalar":
        return None
    if term.op == "log":
        prod = strip(term.args[0])
        if prod.op != "prod" or prod.kind != "tensor" or prod.get("dim") is None:
            return None
        if prod.args[0].kind == "scalar" or says(prod.args[0], "shape|size|dim"):
            return None
        return Match(
            term,
            "`log(prod(x))` is -inf when the product underflows: 0.9**1000 is 0",
            "sum the logarithms: torch.log(x).sum(dim)",
            covers=(prod,),
            severity=None if _of_probabilities(prod.args[0]) else "info",
        )
    is_made = strip(term.args[0]).op in ("softmax", "sigmoid")
    if is_made or (term.op == "prod" and _of_probabilities(term.args[0])):
        return Match(
            term,
            "a product of probabilities underflows: 0.9**1000 is 0",
            "keep logarithms and sum them",
            severity=None if is_made else "info",
        )
    return None


def _of_probabilities(x: Term) -> bool:
    return strip(x).op in ("softmax", "sigmoid") or says(x, r"(^|_)(probs|likelihoods?)$")
