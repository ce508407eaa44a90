"""Logsumexp written by hand.

What it catches
    `log(sum(exp(x)))` where the maximum was not subtracted first.

Why it hurts
    exp overflows at 88.8 in float32 (11.1 in float16), and the result is inf; where every x is below
    -104 the sum is 0 and the result -inf.

Example
    z = torch.log(torch.exp(scores).sum(dim=-1))

Use instead
    z = torch.logsumexp(scores, dim=-1)

When it is fine
    After subtracting the maximum, or where x is bounded: nothing is said there.
"""

from __future__ import annotations

from whynan.lint.facts import bounded_above, small_eps_added
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, strip


@pattern("N050", "logsumexp-hand", "error", ops=("log",), fix="sometimes", rank=10)
def logsumexp_hand(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner, eps = small_eps_added(term.args[0])
    total = strip(inner)
    if total.op != "sum" or not total.args:
        return None
    exp = strip(total.args[0])
    if exp.op != "exp" or not exp.args or bounded_above(exp.args[0]):
        return None
    dim = total.get("dim")
    direct = resolve(inner) is total and resolve(total.args[0]) is exp and not eps
    edit = None
    if direct and dim is not None and term.kind == "tensor":
        keepdim = total.get("keepdim")
        edit = call(term, here, "torch.logsumexp", exp.args[0], dim=dim, keepdim=keepdim)
    better = "subtract the maximum first, as scipy.special.logsumexp does" if term.lib == "numpy" else "torch.logsumexp(x, dim)"  # fmt: skip
    return Match(
        term,
        "`log(sum(exp(x)))` is inf once an x exceeds 88 (float16: 11), -inf when all are below -104",
        better,
        edit=edit,
    )
