"""Cosine similarity written by hand.

What it catches
    `(a * b).sum() / (a.norm() * b.norm())`, also with `dot`, `@` or `einsum`, without an eps.

Why it hurts
    A zero vector gives 0 / 0: value and gradient are NaN.

Example
    sim = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))

Use instead
    sim = F.cosine_similarity(a, b, dim=-1)

When it is fine
    With an eps or a clamp: nothing is said there. It is `info` where nothing says that a whole vector
    becomes 0, as a relu or a mask does. In float16 the eps of `F.cosine_similarity` is 0:
    compute in float32 there.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor, has_gradient, nonzero, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip
from whynan.lint.vanishing import whole_vector


@pattern("N010", "cosine-hand", "warning", ops=("div",), rank=10, operands=2)
def cosine_hand(term: Term, here: Walker) -> Match | None:
    top, bottom = term.args[0], strip(term.args[1])
    if bottom.op == "div" or guarded_divisor(term.args[1], here):
        return None
    lengths = bottom.args if bottom.op in ("mul", "matmul") else ()
    if (first := strip(top)).op == "div" and bottom.op == "norm":  # `a @ b / a.norm() / b.norm()`
        top, lengths = first.args[0], (first.args[1], term.args[1])
    norms = [strip(a) for a in lengths]
    if len(norms) != 2 or any(n.op != "norm" or not n.args for n in norms):
        return None
    if not _is_dot(top) or any(nonzero(a) or tested(a, here) for a in lengths):
        return None
    return Match(
        term,
        "a dot product over two lengths is 0 / 0 = NaN when one vector is zero",
        "F.cosine_similarity(a, b, dim) has an eps",
        elsewhere="keep the product of the lengths above 0: add a small eps to it",
        severity=None
        if has_gradient(term, here) and any(whole_vector(n.args[0]) for n in norms)
        else "info",
    )


def _is_dot(term: Term) -> bool:
    t = strip(term)
    if t.op == "sum" and t.args:
        return strip(t.args[0]).op == "mul"
    return t.op in ("dot", "matmul", "einsum")
