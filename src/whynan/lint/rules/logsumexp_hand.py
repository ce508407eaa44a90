"""Logsumexp written by hand.

What it catches
    `log(sum(exp(x)))` where the maximum was not subtracted first; the sum may also be a mean, a matrix
    product or an `einsum`.

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
from whynan.ops.table import that

# From a quotient's dividend to the exponential in it.
LEADING = that("picks") | {"sum", "mul", "diagonal", ".diag", ".diagonal"}

PRODUCTS = ("einsum", "matmul", "dot")  # sums of products
SYMPTOM = "is inf once an x exceeds 88 (float16: 11), -inf when all are below -104"


@pattern("N050", "logsumexp-hand", "error", ops=("log",), fix="sometimes", rank=10)
def logsumexp_hand(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner, eps = small_eps_added(term.args[0])
    total = strip(inner)
    if total.op in PRODUCTS:
        return _of_product(term, total)
    if total.op == "div" and len(total.args) == 2:
        return _of_quotient(term, total)
    if total.op not in ("sum", "mean") or not total.args:
        return None
    exp = strip(total.args[0])
    if not _overflows(exp):
        return None
    if total.op == "mean":
        return Match(
            term,
            f"`log(mean(exp(x)))` {SYMPTOM}",
            "torch.logsumexp(x, dim) - math.log(n) for the mean of n values",
            elsewhere="subtract the maximum first, as scipy.special.logsumexp does",
        )
    dim = total.get("dim")
    direct = resolve(inner) is total and resolve(total.args[0]) is exp and not eps
    edit = None
    if direct and dim is not None and term.kind == "tensor":
        keepdim = total.get("keepdim")
        edit = call(term, here, "torch.logsumexp", exp.args[0], dim=dim, keepdim=keepdim)
    better = "subtract the maximum first, as scipy.special.logsumexp does" if term.lib == "numpy" else "torch.logsumexp(x, dim)"  # fmt: skip
    return Match(
        term,
        f"`log(sum(exp(x)))` {SYMPTOM}",
        better,
        edit=edit,
    )


def _of_quotient(term: Term, quotient: Term) -> Match | None:
    """`log(pos / exp(sim).sum())`, as contrastive losses are written."""
    top, bottom = map(strip, quotient.args)
    sums = bottom.args if bottom.op == "add" else (bottom,)
    totals = [strip(t) for t in sums]
    exps = [strip(t.args[0]) for t in totals if t.op == "sum" and t.args]
    while top.op in LEADING and top.args:
        top = strip(top.args[0])
    if not _overflows(top) or not any(map(_overflows, exps)):
        return None
    scaled = strip(top.args[0]).op == "div"  # cosines over a temperature are seldom that large
    return Match(
        term,
        f"a quotient of exponentials inside a logarithm {SYMPTOM}",
        "subtract logarithms: x - torch.logsumexp(x, dim), or F.cross_entropy(x, index)",
        elsewhere="subtract the maximum of x first, then the logarithm of the sum from x",
        severity="info" if scaled else None,
    )


def _overflows(term: Term) -> bool:
    return term.op == "exp" and bool(term.args) and not bounded_above(term.args[0])


def _of_product(term: Term, product: Term) -> Match | None:
    """A sum of exponentials with weights."""
    if not any(_overflows(strip(factor)) for factor in product.args):
        return None
    return Match(
        term,
        f"a weighted sum of exponentials inside a logarithm {SYMPTOM}",
        "add the logarithms of the weights, then torch.logsumexp(x + log_w, dim)",
        elsewhere="subtract the maximum of x first and add it to the result",
    )
