"""Softmax over a row that may be entirely masked.

What it catches
    `softmax(scores.masked_fill(mask, -inf))`, also by `where(mask, scores, -inf)` or
    `scores[~mask] = -inf`, in a function that does nothing about rows in which the mask leaves nothing.

Why it hurts
    A row of -inf has no softmax: it is NaN. An empty sentence, a padding query or a state without a
    legal action is enough. With an additive mask the gradients stay NaN even after `nan_to_num`.

Example
    att = torch.softmax(scores.masked_fill(pad_mask, float("-inf")), dim=-1)

Use instead
    att = torch.softmax(scores.masked_fill(pad_mask, torch.finfo(scores.dtype).min), dim=-1)

When it is fine
    For causal masks, where every query sees itself, for top-k filters, and with
    `scaled_dot_product_attention`, which gives 0 for such a row.
"""

from __future__ import annotations

import math
import re

from whynan.lint.facts import is_mask
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, number_of, strip, walk_through
from whynan.ops.table import that

CONSTANT = that("constant")
HANDLED = re.compile(
    r"nan_to_num|isnan|\.any\(|\.all\(|masked_fill\w*\([^)]*,\s*0(\.0*)?\)|fully|all_masked|is_empty"
)
SAFE_MASK = re.compile(
    r"causal|local|window|tril|triu|future|subsequent|look_?ahead|top_?[kp]|diag|eye|remove", re.I
)


@pattern("N031", "neginf-softmax", "info", ops=("softmax",), rank=30)
def neginf_softmax(term: Term, here: Walker) -> Match | None:
    if not term.args or here.function is None:
        return None
    filled = strip(term.args[0])
    # `if mask is not None: scores = scores.masked_fill(...)`
    arms = filled.args if filled.op == "merged" else (filled,)
    mask = next((m for arm in arms if (m := _mask(strip(arm))) is not None), None)
    if mask is None or any(SAFE_MASK.search(n) for n in names_in(mask)):
        return None
    if any(t.op in CONSTANT or t.op in ("tril", "triu") for t in walk_through(mask)):
        return None
    if HANDLED.search(here.body) or SAFE_MASK.search(here.body):
        return None
    return Match(
        term,
        "softmax of a row that is masked entirely is NaN",
        "fill with torch.finfo(x.dtype).min instead of -inf, or handle empty rows",
    )


def _mask(filled: Term) -> Term | None:
    """What decides where -inf is filled in."""
    if filled.op == "masked_fill" and filled.const("value") == -math.inf:
        return filled.get("mask")
    if filled.op == "where" and len(filled.args) == 3:
        return filled.args[0] if any(map(_is_neginf, filled.args[1:])) else None
    if filled.op == "patched" and len(filled.args) == 2 and _is_neginf(filled.args[1]):
        return filled.args[0] if is_mask(filled.args[0]) else None
    return None


def _is_neginf(term: Term) -> bool:
    inner = strip(term)
    if inner.op in ("tensor", "full", "full_like", "as_tensor") and inner.args:
        inner = inner.args[-1]
    return number_of(inner) == -math.inf
