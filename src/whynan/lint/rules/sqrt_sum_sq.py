"""Euclidean length as the root of a sum of squares.

What it catches
    `sqrt((x**2).sum(d))` in all its spellings, on torch values, without an eps inside.

Why it hurts
    At a zero vector the slope of sqrt is infinite and that of the square is 0: the gradient is NaN.
    The square overflows at 1e20 (at 256 in float16).

Example
    dist = ((a - b) ** 2).sum(-1).sqrt()

Use instead
    dist = torch.linalg.vector_norm(a - b, dim=-1)

When it is fine
    Without gradients, in NumPy, or with an eps inside the root: nothing is said there. It is `info` where
    nothing says that the vector becomes 0, as a difference, a relu or a mask does.
"""

from __future__ import annotations

import re

from whynan.lint.belonging import is_torch
from whynan.lint.facts import (
    has_gradient,
    is_square,
    says,
    summed_square,
    tested,
)
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, resolve, strip
from whynan.lint.training import computes_loss
from whynan.lint.vanishing import distance, is_generic

GIVEN = re.compile(r"(^|_)(gt|targets?|labels?)(_|$)")


@pattern("N021", "sqrt-sum-sq", "warning", ops=("sqrt", "pow"), fix="sometimes", rank=10)
def sqrt_sum_sq(term: Term, here: Walker) -> Match | None:
    if not term.args or (term.op == "pow" and term.const("exponent") != 0.5):
        return None
    total = strip(term.args[0])
    if not total.args or not has_gradient(term, here):
        return None
    x = summed_square(total)
    if x is None and (found := _of_two(term, total, here)) is not None:
        return found
    if x is None or total.lib == "numpy" or term.lib in ("numpy", "math"):
        return None
    if not is_torch(term, here) or tested(total.args[0], here) or strip(x).op == "const":
        return None
    if strip(x).op in ("softmax", "ones"):
        return None  # never all 0
    names = names_in(x)
    if names and all(map(GIVEN.search, names)):
        return None  # targets have no slope
    if says(x, "window|tril|chol|diag") or is_generic(x):
        return None
    edit = None
    square = resolve(total.args[0])
    direct = (
        total.op == "sum"
        and resolve(term.args[0]) is total
        and is_square(square) is x
        and square.form
    )
    if direct:
        edit = call(
            term, here, "torch.linalg.vector_norm", x,
            dim=total.get("dim"), keepdim=total.get("keepdim"),
        )  # fmt: skip
    return Match(
        term,
        "the root of a sum of squares has a NaN gradient at a zero vector and overflows at 1e20 (float16: 256)",
        "torch.linalg.vector_norm(x, dim) has gradient 0 there",
        edit=edit,
        severity=None if distance(x) else "info",
    )


def _of_two(term: Term, total: Term, here: Walker) -> Match | None:
    """`sqrt(re**2 + im**2)`."""
    sides = [is_square(a) for a in total.args] if total.op == "add" and len(total.args) == 2 else []
    if len(sides) != 2 or None in sides or not is_torch(term, here) or tested(total, here):
        return None
    complex_parts = all(s is not None and says(s, r"^(re|im|real|imag)") for s in sides)
    return Match(
        term,
        "the root of a sum of two squares has a NaN gradient where both are 0",
        "add an eps inside the root: sqrt(x**2 + y**2 + 1e-12)",
        severity=None if complex_parts and computes_loss(here) else "info",
    )
