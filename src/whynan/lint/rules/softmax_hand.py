"""Softmax written by hand.

What it catches
    `exp(x) / exp(x).sum()` where the maximum was not subtracted first.

Why it hurts
    exp overflows at 88.8 in float32 (11.1 in float16), and inf / inf is NaN; where every x is below
    -104, 0 / 0 is NaN as well.

Example
    weights = torch.exp(scores) / torch.exp(scores).sum(dim=-1, keepdim=True)

Use instead
    weights = torch.softmax(scores, dim=-1)

When it is fine
    After subtracting the maximum, or where x is bounded: nothing is said there.
"""

from __future__ import annotations

from whynan.lint.facts import bounded_above
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, same_values, strip


@pattern("N050", "softmax-hand", "error", ops=("div",), fix="sometimes", rank=5, operands=2)
def softmax_hand(term: Term, here: Walker) -> Match | None:
    exp, total = strip(term.args[0]), strip(term.args[1])
    if exp.op != "exp" or not exp.args or total.op != "sum" or not total.args:
        return None
    if not same_values(total.args[0], exp) or bounded_above(exp.args[0]):
        return None
    edit = None
    dim, keep = total.get("dim"), total.const("keepdim")
    aligned = keep is True or (dim is not None and total.const("dim") == 0)
    direct = resolve(term.args[0]) is exp and resolve(term.args[1]) is total
    if direct and aligned and dim is not None and term.kind == "tensor":
        edit = call(term, here, "torch.softmax", exp.args[0], dim=dim)
    better = "subtract x.max() first" if term.kind == "array" else "torch.softmax(x, dim)"
    return Match(
        term,
        "`exp(x) / exp(x).sum()` is NaN once an x exceeds 88 (float16: 11) or all are below -104",
        better,
        edit=edit,
        # What is scaled or negated first is mostly a distance, a cost or a cosine, and bounded.
        severity="info" if strip(exp.args[0]).op in ("div", "mul", "neg") else None,
    )
