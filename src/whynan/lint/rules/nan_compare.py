"""Comparison with NaN.

What it catches
    `x == float("nan")`, `x != np.nan` and the like.

Why it hurts
    NaN is equal to nothing, itself included: `==` is always False and `!=` always True, so that the
    test never sees the NaN it was written for.

Example
    bad = torch.tensor([1.0]) == float("nan")

Use instead
    bad = torch.isnan(torch.tensor([1.0]))

When it is fine
    `x != x` is a valid test and is not reported.
"""

from __future__ import annotations

from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve


@pattern("N083", "nan-compare", "error", ops=("compare", "eq", "ne"), fix="sometimes", rank=10)
def nan_compare(term: Term, here: Walker) -> Match | None:
    asks = {"eq": "Eq", "ne": "NotEq"}.get(term.op, term.value)
    if asks not in ("Eq", "NotEq") or len(term.args) != 2:
        return None
    for x, other in (term.args, term.args[::-1]):
        constant = resolve(other)
        if constant.op != "const" or constant.value == constant.value:
            continue
        edit = None
        library = {"tensor": "torch", "array": "numpy"}.get(x.kind)
        if library:
            shape = "{}" if asks == "Eq" else "~{}"
            edit = call(term, here, f"{library}.isnan", x, shape=shape)
        always = "False" if asks == "Eq" else "True"
        return Match(
            term,
            f"a comparison with NaN is always {always}",
            "torch.isnan(x) for tensors, math.isnan(x) for numbers",
            elsewhere="isnan(x) says whether x is NaN",
            edit=edit,
        )
    return None
