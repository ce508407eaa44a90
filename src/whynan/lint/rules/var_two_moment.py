"""Variance from two moments.

What it catches
    `mean(x**2) - mean(x)**2`.

Why it hurts
    Two large numbers cancel: for [10000, 10000.1, 10000.2] the result is -16 where the variance is
    0.0067. A square root of it is NaN, and a clamp at 0 leaves it wrong.

Example
    var = (x ** 2).mean(0) - x.mean(0) ** 2

Use instead
    var = x.var(0, correction=0)

When it is fine
    For running statistics of data that is centred already; `Welford` updates do the same safely.
"""

from __future__ import annotations

from whynan.lint.facts import is_square
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, same, same_values, strip


@pattern("N013", "var-two-moment", "warning", ops=("sub",), fix="sometimes", rank=20, operands=2)
def var_two_moment(term: Term, here: Walker) -> Match | None:
    first, mean = strip(term.args[0]), is_square(term.args[1])
    second = strip(mean) if mean is not None else None
    if (
        first.op != "mean"
        or not first.args
        or second is None
        or second.op != "mean"
        or not second.args
    ):
        return None
    x = is_square(first.args[0])
    if x is None or not same_values(x, second.args[0]):
        return None
    edit = None
    dim, keep = first.get("dim"), first.get("keepdim")
    aligned = _equal(dim, second.get("dim")) and _equal(keep, second.get("keepdim"))
    direct = resolve(term.args[0]) is first and mean is not None and resolve(mean) is second
    if aligned and direct and term.kind == "tensor":
        edit = call(term, here, "torch.var", x, "correction=0", dim=dim, keepdim=keep)
    elif aligned and direct and term.kind == "array":
        edit = call(term, here, "numpy.var", x, axis=dim, keepdims=keep)
    return Match(
        term,
        "`mean(x**2) - mean(x)**2` cancels: negative for values near 10000 that differ by 0.1",
        "x.var(dim, correction=0) subtracts the mean first",
        elsewhere="var(x) subtracts the mean first",
        edit=edit,
    )


def _equal(a: Term | None, b: Term | None) -> bool:
    return a is b is None or (a is not None and b is not None and same(a, b))
