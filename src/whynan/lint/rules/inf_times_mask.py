"""A mask multiplied by infinity.

What it catches
    `(1 - mask) * float("-inf")`: the product of something that contains zeros with an infinity.

Why it hurts
    0 times inf is NaN, so every position that should stay visible becomes NaN.

Example
    scores = scores + (1 - mask) * float("-inf")

Use instead
    scores = scores.masked_fill(mask == 0, float("-inf"))

When it is fine
    For `ones(...) * inf`, which fills: nothing is said there.
"""

from __future__ import annotations

import math

from whynan.lint.facts import is_mask, one_minus
from whynan.lint.finding import Edit
from whynan.lint.rewrite import call, operand, text
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, strip
from whynan.ops.table import that

CONSTANT = that("constant")


@pattern("N023", "inf-times-mask", "error", ops=("mul", "add"), fix="sometimes", rank=10)
def inf_times_mask(term: Term, here: Walker) -> Match | None:
    if term.op == "mul":
        mask = _masked(term)
        if mask is None:
            return None
        return _match(term, "scores", _hidden(mask, here), 'float("-inf")')
    for scores, bias in (term.args, term.args[::-1]) if len(term.args) == 2 else ():
        mask = _masked(bias) if bias.op == "mul" else None
        if mask is None or scores.kind in ("scalar", "array"):
            continue
        infinite = next(a for a in bias.args if _infinite(a))
        hidden, infinity = _hidden(mask, here), text(infinite, here)
        edit = None
        if term.form == "operator":
            # Both sides of the sum may be the wider one, which `masked_fill` does not allow.
            used = [mask, infinite]
            edit = call(term, here, "torch.where", hidden, infinity, scores, uses=used)
        return _match(term, operand(scores, here), hidden, infinity, edit, (bias,))
    return None


def _hidden(mask: Term, here: Walker) -> str:
    """Which positions the product was meant to hide."""
    kept = one_minus(mask)
    return f"{operand(kept, here)} == 0" if kept is not None else f"{operand(mask, here)} != 0"


def _match(
    term: Term, scores: str, hidden: str, infinity: str,
    edit: Edit | None = None, covers: tuple[Term, ...] = (),
) -> Match:  # fmt: skip
    return Match(
        term,
        "a mask times infinity is NaN wherever the mask is 0",
        f"{scores}.masked_fill({hidden}, {infinity})",
        elsewhere=f"where({hidden}, {infinity}, {scores})",
        edit=edit,
        covers=covers,
    )


def _infinite(term: Term) -> bool:
    value = number_of(term)
    return isinstance(value, float) and math.isinf(value)


def _masked(term: Term) -> Term | None:
    """The other factor of an infinity, when it is a mask."""
    if len(term.args) != 2:
        return None
    for mask, other in (term.args, term.args[::-1]):
        made = strip(mask).op
        if _infinite(other) and made not in CONSTANT and made not in ("const", "triu", "tril"):
            return mask if is_mask(mask) or one_minus(mask) is not None else None
    return None
