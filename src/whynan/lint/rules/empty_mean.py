"""Mean of what a mask selects, which may be nothing.

What it catches
    `loss[mask].mean()` and `F.l1_loss(pred[mask], y[mask])`, also by `masked_select`, without a look at whether the mask selects anything.

Why it hurts
    The mean of nothing is NaN. A batch without a positive example, a sequence that is all padding, a
    label that is ignored everywhere: the loss is NaN, and so are the gradients.

Example
    loss = per_token[mask].mean()

Use instead
    loss = (per_token * mask).sum() / mask.sum().clamp(min=1)

When it is fine
    Where an `if` looks at the mask first, or the result is cleaned.
"""

from __future__ import annotations

import ast
import re

from whynan.lint.facts import has_gradient, is_mask, says, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve, same
from whynan.lint.vanishing import nothing_selected
from whynan.ops.table import that

LOSSES = that("differs")
HANDLED = re.compile(r"nan_to_num|isnan|\.any\(|numel\(|is_empty|len\(")


@pattern("N032", "empty-mean", "warning", ops=("mean", *sorted(LOSSES)), rank=30)
def empty_mean(term: Term, here: Walker) -> Match | None:
    if not term.args or here.function is None or term.get("dim") is not None:
        return None
    if term.op in LOSSES and (term.form != "call" or not _means_over_one_mask(term)):
        return None
    chosen = resolve(term.args[0])
    if chosen.op not in ("index", "masked_select") or len(chosen.args) != 2:
        return None
    mask = chosen.args[1]
    if not is_mask(mask) or tested(mask, here) or tested(chosen, here):
        return None
    if HANDLED.search(here.body):
        return None
    return Match(
        term,
        "the mean of what a mask selects is NaN when it selects nothing",
        "divide a masked sum by mask.sum().clamp(min=1), or look whether anything is selected",
        elsewhere="divide a masked sum by maximum(mask.sum(), 1), or look whether anything is selected",
        fault=f"{here.function.lineno} {ast.unparse(mask.node)}",
        severity=None
        if _is_loss(chosen.args[0], term, here) and nothing_selected(mask)
        else "info",
    )


def _means_over_one_mask(term: Term) -> bool:
    """`F.l1_loss(pred[mask], y[mask])`."""
    reduction = term.kw.get("reduction")
    parts = [resolve(a) for a in term.args[:2]]
    return (
        (reduction is None or number_of(reduction) == "mean")
        and len(parts) == 2
        and all(p.op in ("index", "masked_select") and len(p.args) == 2 for p in parts)
        and same(parts[0].args[1], parts[1].args[1])
    )


def _is_loss(values: Term, term: Term, here: Walker) -> bool:
    """Something that is trained on, as far as the names say."""
    named = (
        term.op in LOSSES
        or says(values, "loss|nll|ce$|error")
        or (here.function is not None and "loss" in here.function.name.lower())
    )
    return named and has_gradient(term, here)
