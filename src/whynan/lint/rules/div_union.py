"""Overlap of two sets divided by their size.

What it catches
    IoU and dice of soft or hard masks, `inter / union` and `2 * inter / (a.sum() + b.sum())`,
    without smoothing.

Why it hurts
    Where both masks are empty (a class that is absent from the image) it is 0 / 0: NaN.

Example
    inter = (pred * target).sum()
    dice = 2 * inter / (pred.sum() + target.sum())

Use instead
    inter = (pred * target).sum()
    dice = (2 * inter + 1e-6) / (pred.sum() + target.sum() + 1e-6)

When it is fine
    With smoothing or a clamp, and for boxes, whose areas are positive: nothing is said there.
"""

from __future__ import annotations

from collections.abc import Iterator

from whynan.lint.facts import guarded_divisor
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip
from whynan.ops.table import that

SQUARES = that("squares")
JOINT = ("mul", "and", "logical_and", "minimum")


@pattern("N010", "div-union", "warning", ops=("div",), rank=15, operands=2)
def div_union(term: Term, here: Walker) -> Match | None:
    if guarded_divisor(term.args[1], here):
        return None
    inter = _total(term.args[0])
    if inter is None:
        return None
    joint = strip(inter.args[0])
    both_of = inter.args[1:] if inter.op == "einsum" else joint.args if joint.op in JOINT else ()
    if len(both_of) != 2:
        return None
    sums = [t for t in _summands(term.args[1]) if t.op == "sum" and t.args]
    a, b = both_of
    if any(strip(t).op == "exp" for t in both_of) or "nanmean" in here.body:
        return None  # never 0, or left out afterwards
    both = _sums_up(sums, a) and _sums_up(sums, b) and not same_values(a, b)
    if not both:
        return None
    return Match(
        term,
        "overlap divided by size is 0 / 0 = NaN when both masks are empty",
        "add the same small number above and below, or clamp the divisor",
        elsewhere="add the same small number above and below",
    )


def _total(term: Term) -> Term | None:
    """The `sum` in `2 * (a * b).sum()`."""
    t = strip(term)
    if t.op == "mul" and len(t.args) == 2:
        rest = [a for a in t.args if number_of(a) is None]
        t = strip(rest[0]) if len(rest) == 1 else t
    return t if t.op in ("sum", "einsum") and t.args else None


def _summands(term: Term, depth: int = 5) -> Iterator[Term]:
    t = strip(term)
    if t.op in ("add", "sub") and depth:
        for part in t.args:
            yield from _summands(part, depth - 1)
    else:
        yield t


def _sums_up(sums: list[Term], x: Term) -> bool:
    return any(same_values(s.args[0], x) or _squared(s.args[0], x) for s in sums)


def _squared(term: Term, x: Term) -> bool:
    t = strip(term)
    return (t.op in ("mul", "or", "logical_or", "add") or t.op in SQUARES) and any(
        same_values(a, x) for a in t.args
    )
