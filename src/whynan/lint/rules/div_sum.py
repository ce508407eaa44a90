"""Weights divided by their own sum.

What it catches
    A division by `bincount`'s counts, and `w / w.sum()` where w can be all zero: it comes from a mask, a relu or a comparison. Without such evidence it is reported only when the pattern is selected by name.

Why it hurts
    A sum of 0 gives 0 / 0 = NaN, and weights of both signs may cancel.

Example
    weights = torch.relu(scores)
    weights = weights / weights.sum(dim=-1, keepdim=True)

Use instead
    weights = torch.relu(scores)
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-12)

When it is fine
    Where every weight is positive (exp, softplus, softmax) or the sum is guarded.
"""

from __future__ import annotations

import re

from whynan.lint.facts import guarded_divisor, is_mask
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same_values, strip
from whynan.lint.vanishing import nothing_selected
from whynan.ops.table import reading

WHOLE = reading("reduction", "choice") | {".numel", ".size"}  # of a whole tensor

# What keeps the largest of a distribution leaves something of it.
SAMPLES = re.compile(r"topk|top_[kp]\b|nucleus|multinomial")
CLEANED = re.compile(r"\b(\w+)\[\1 != \1\]|nan_to_num|isnan|nan(mean|sum)")
COUNTS = ("bincount", "histc", "histogram")


@pattern("N010", "div-sum", "warning", ops=("div",), rank=30, operands=2)
def div_sum(term: Term, here: Walker) -> Match | None:
    if term.kind == "scalar":
        return None
    total = strip(term.args[1])
    if total.op in COUNTS and not guarded_divisor(term.args[1], here) and not _cleaned(here):
        return Match(
            term,
            f"a count by `{total.op}` is 0 for what does not occur, and the quotient infinite",
            "keep the counts above 0: counts.clamp(min=1)",
            elsewhere="keep the counts above 0: maximum(counts, 1)",
            severity=None if _weighs_classes(term.args[0], total) else "info",
        )
    if total.op != "sum" or not total.args or guarded_divisor(term.args[1], here):
        return None
    handled = SAMPLES.search(here.body) or _cleaned(here)
    if not same_values(term.args[0], total.args[0]) or handled:
        return None
    evidence = _may_vanish(total.args[0])
    return Match(
        term,
        f"`w / w.sum()` is 0 / 0 = NaN when every weight is 0{evidence and ', and ' + evidence}",
        "keep the sum above 0: w.sum(...).clamp(min=1e-12)",
        elsewhere="keep the sum above 0: maximum(w.sum(...), 1e-12)",
        weak=not evidence,
        severity=None if "mask" not in evidence or nothing_selected(total.args[0]) else "info",
    )


def _cleaned(here: Walker) -> bool:
    return CLEANED.search(here.body if here.function is not None else here.source.text) is not None


def _weighs_classes(dividend: Term, counts: Term) -> bool:
    """`total / counts`, not a sum over what was counted, which is 0 where the count is."""
    top = strip(dividend)
    whole = number_of(top) is not None or top.op in WHOLE
    return whole or top.kind == "scalar" or same_values(top, counts)


def _may_vanish(term: Term) -> str:
    """What lets all weights be 0 at once; '' when nothing says so."""
    t = strip(term)
    if t.op == "relu":
        return "relu can make them so"
    if t.op == "mul" and any(is_mask(a) for a in t.args):
        return "a mask that selects nothing makes them so"
    if t.op in ("compare", "invert") or (
        t.op in ("param", "name") and str(t.value).endswith("mask")
    ):
        return "a mask that selects nothing makes them so"
    if t.op == "masked_fill" and t.const("value") == 0:
        return "a mask that selects nothing makes them so"
    return ""
