"""Arc cosine of a dot product that rounding can push past 1.

What it catches
    `acos` or `asin` of a dot product, a matrix product or a cosine similarity, without a clamp; and of
    the other functions that end at 1, `acosh`, `atanh` and `erfinv`; `atanh` of a `tanh` or a norm.

Why it hurts
    The dot product of a unit vector with itself exceeded 1 in 147 of 1,000 random trials, and acos of
    1.0000001 is NaN.

Example
    angle = torch.acos((u * v).sum(-1))

Use instead
    angle = torch.acos((u * v).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6))

When it is fine
    With a clamp: nothing is said there, though one at exactly 1 leaves the gradient infinite.
"""

from __future__ import annotations

from whynan.lint.facts import tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, strip
from whynan.lint.training import trains
from whynan.ops import table
from whynan.ops.table import TABLE, row

ENDING = tuple(op.name for op in TABLE if "invalid_domain" in op.fails and 1 in op.singular)
OPERATORS = frozenset(op.name for op in table.OPERATORS.values())


@pattern("N014", "acos-unclamped", "error", ops=ENDING, rank=20)
def acos_unclamped(term: Term, here: Walker) -> Match | None:
    if not term.args or term.lib == "math" or tested(term.args[0], here):
        return None
    if term.op == "atanh" and (found := _of_its_inverse(term)) is not None:
        return found
    if not _is_product(term.args[0]):
        return None
    domain = row(term.op).domain
    if domain is not None and domain.low == 1:
        past, inside = "below 1, as equal points do", "to above 1: .clamp(min=1 + 1e-6)"
    else:
        past, inside = "past 1, as equal unit vectors do", f"to the inside of {domain}: .clamp(-1 + 1e-6, 1 - 1e-6)"  # fmt: skip
    return Match(
        term,
        f"`{term.op}` of a dot product is NaN when rounding takes it {past}",
        f"clamp {inside}",
        severity=None if trains(here) else "info",
    )


def _of_its_inverse(term: Term) -> Match | None:
    """`atanh(tanh(x))`, and of a length that is to stay below 1."""
    inner = strip(term.args[0])
    if inner.op == "tanh":
        return Match(
            term,
            "`atanh` of a tanh is inf from |x| = 9 on (float16: 4), where tanh is rounded to 1",
            "keep x itself, from before the tanh",
            elsewhere="keep x itself, from before the tanh",
        )
    if inner.op == "norm" and term.kind != "array":
        return Match(
            term,
            "`atanh` of a norm is inf or NaN when the length reaches 1",
            "clamp it below 1: .clamp(max=1 - 1e-5)",
            severity="warning",
        )
    return None


def _is_product(term: Term, depth: int = 4) -> bool:
    t = strip(term)
    if row(t.op).reads == "product" or t.op in ("einsum", "cosine_similarity", "trace"):
        return True
    if t.op == "sum" and t.args:
        return strip(t.args[0]).op == "mul"
    if t.op in ("add", "sub") and len(t.args) == 2 and all(map(_is_term_of_a_product, t.args)):
        return True  # a dot product written out
    if t.op in OPERATORS and depth:
        return any(_is_product(a, depth - 1) for a in t.args if number_of(a) is None)
    return False


def _is_term_of_a_product(term: Term) -> bool:
    t = strip(term)
    return t.op == "mul" and len(t.args) == 2 and all(number_of(a) is None for a in t.args)
