"""Distances from the expanded square.

What it catches
    The square root of `a**2 + b**2 - 2 * a @ b` without a clamp.

Why it hurts
    For two nearly equal points the three large terms cancel to a small negative number, and its
    square root is NaN: 14 of 2,500 in a random test. Near 100, even the clamped form is off by 0.25.

Example
    dist = torch.sqrt((a ** 2).sum(1, keepdim=True) + (b ** 2).sum(1) - 2 * a @ b.T)

Use instead
    dist = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")

When it is fine
    With a clamp at a small positive number before the root: nothing is said there.
"""

from __future__ import annotations

from collections.abc import Iterator

from whynan.lint.facts import is_square
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, strip

DOTS = ("matmul", "einsum", "dot")


@pattern("N013", "pairwise-expand", "error", ops=("sqrt", "pow"), rank=10)
def pairwise_expand(term: Term, here: Walker) -> Match | None:
    if not term.args or (term.op == "pow" and term.const("exponent") != 0.5):
        return None
    parts = list(_summands(term.args[0], 1))
    crossed = any(sign < 0 and _is_twice_dot(t) for sign, t in parts)
    squared = sum(sign > 0 and _is_sum_of_squares(t) for sign, t in parts)
    if not crossed or not squared:
        return None
    return Match(
        term,
        "the root of `a**2 + b**2 - 2ab` is NaN for nearly equal points, where rounding makes it negative",
        'torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), or clamp above 0 first',
    )


def _summands(term: Term, sign: int, depth: int = 6) -> Iterator[tuple[int, Term]]:
    t = strip(term)
    if t.op in ("add", "sub") and len(t.args) == 2 and depth:
        yield from _summands(t.args[0], sign, depth - 1)
        yield from _summands(t.args[1], sign if t.op == "add" else -sign, depth - 1)
    elif t.op == "neg":
        yield from _summands(t.args[0], -sign, depth - 1)
    elif t.op in ("mul", "matmul") and t.args and (factor := number_of(t.args[0])) and factor < 0:  # type: ignore[operator]  # numbers compare
        yield -sign, t
    else:
        yield sign, t


def _is_twice_dot(term: Term) -> bool:
    """`2 * a @ b` parses as `(2 * a) @ b`."""
    found_two = found_dot = False
    stack = [term]
    while stack:
        t = strip(stack.pop())
        found_dot |= t.op in DOTS
        found_two |= t.op in ("mul", "matmul") and any(number_of(a) in (2, -2) for a in t.args)
        if t.op in ("mul", "matmul"):
            stack.extend(t.args)
    return found_two and found_dot


def _is_sum_of_squares(term: Term) -> bool:
    t = strip(term)
    return t.op == "sum" and bool(t.args) and is_square(t.args[0]) is not None
