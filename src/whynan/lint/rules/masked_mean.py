"""Mean over a mask that may be empty.

What it catches
    `(x * m).sum() / m.sum()` and `x[m].sum() / m.sum()` without anything against an empty mask.

Why it hurts
    A batch in which nothing is selected gives 0 / 0: value and gradient are NaN, and one such batch
    ruins the weights.

Example
    loss = (per_token * mask).sum() / mask.sum()

Use instead
    loss = (per_token * mask).sum() / mask.sum().clamp(min=1)

When it is fine
    With a clamp, an eps, or an `if` that looks at the count: nothing is said there.
    The clamp is for a mask of zeros and ones, and `--fix` writes it only where the code shows that
    it is one. Weights may sum to less than 1: clamp them to a small number instead.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor, is_binary, is_mask, says
from whynan.lint.finding import Edit
from whynan.lint.rewrite import call, operand
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import same_values, strip
from whynan.lint.training import computes_loss
from whynan.lint.vanishing import nothing_selected

PRODUCTS = ("einsum", "matmul")


@pattern("N010", "masked-mean", "warning", ops=("div",), fix="sometimes", rank=10, operands=2)
def masked_mean(term: Term, here: Walker) -> Match | None:
    top, bottom = strip(term.args[0]), strip(term.args[1])
    if (
        top.op not in ("sum", "neg", *PRODUCTS)
        or bottom.op not in ("sum", "count_nonzero")
        or not bottom.args
    ):
        return None
    top = strip(top.args[0]) if top.op == "neg" else top
    if top.op not in ("sum", *PRODUCTS) or not top.args or guarded_divisor(term.args[1], here):
        return None
    mask = bottom.args[0]
    weighed = top.args if top.op in PRODUCTS else top.args[:1]
    if not any(
        _weighs(a, mask) or (top.op in PRODUCTS and same_values(a, mask)) for a in weighed
    ) or not (is_mask(mask) or is_binary(mask) or strip(mask).op == "relu"):
        return None
    if not _counts(top.args[0], bottom):
        return Match(
            term,
            "a mean over a mask is 0 / 0 = NaN when the mask selects nothing",
            "divide by mask.sum().clamp(min=1) if the mask is 0 or 1 everywhere; weights can sum to "
            "less than 1 and need a smaller bound, such as clamp(min=1e-6)",
            elsewhere="divide by maximum(mask.sum(), 1) if the mask is 0 or 1 everywhere; weights can "
            "sum to less than 1 and need a smaller bound, such as 1e-6",
            severity=None if _in_a_loss(term, here) and nothing_selected(mask) else "info",
        )
    edit = None
    count = term.args[1]
    if term.kind == "tensor" or (term.kind == "?" and bottom.form == "method"):
        bounded = f"{operand(count, here)}.clamp(min=1)"
        edit = Edit(node=count.node, text=bounded, library="torch")
    elif term.kind == "array":
        edit = call(term, here, "numpy.maximum", count, "1", instead=count)
    return Match(
        term,
        "a mean over a mask is 0 / 0 = NaN when the mask selects nothing",
        "divide by mask.sum().clamp(min=1): an empty mask then gives 0",
        elsewhere="divide by maximum(mask.sum(), 1): an empty mask then gives 0",
        edit=edit,
        severity=None if _in_a_loss(term, here) and nothing_selected(mask) else "info",
    )


def _in_a_loss(term: Term, here: Walker) -> bool:
    """Where an empty mask spoils the training; elsewhere whoever calls it knows what it selects."""
    return not here.no_grad and (says(term, r"loss|nll|ce$|error") or computes_loss(here))


def _counts(top: Term, bottom: Term) -> bool:
    """Is the divisor a whole number, so that a bound of 1 changes nothing but 0?"""
    selects = top.op in ("index", "masked_select")  # torch refuses an index of weights
    return selects or bottom.op == "count_nonzero" or is_binary(bottom.args[0])


def _weighs(top: Term, mask: Term) -> bool:
    """Is something multiplied, indexed or selected by the mask?"""
    t = strip(top)
    if t.op == "mul" and any(same_values(a, mask) or _weighs(a, mask) for a in t.args):
        return True
    return top.op in ("index", "masked_select") and len(top.args) > 1 and same_values(top.args[1], mask)  # fmt: skip
