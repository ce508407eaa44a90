"""Gradient clipping that hides a bad gradient.

What it catches
    `clip_grad_norm_` without `error_if_nonfinite=True`, in a function without a check for finite
    values or a GradScaler. Off unless selected: nobody sets the flag, and most runs never need it.

Why it hurts
    With one infinite gradient the norm is inf: every gradient becomes 0 or NaN, silently. Gradients
    of 1e20 have an infinite norm in float32, and all become 0: the step does nothing.

Example
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

Use instead
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)

When it is fine
    With a GradScaler, which skips such steps, or with a check of the returned norm.
"""

from __future__ import annotations

import re

from whynan.lint.table import Match, Term, Walker, pattern


@pattern("N084", "clip-nonfinite", "info", ops=("clip_grad_norm_",), default=False, rank=10)
def clip_nonfinite(term: Term, here: Walker) -> Match | None:
    if term.form != "call" or "error_if_nonfinite" in term.kw or "**" in term.kw:
        return None
    if re.search(r"isfinite|isnan|isinf|scaler|nan_to_num", here.body):
        return None
    return Match(
        term,
        "an infinite norm makes every gradient 0 or NaN, silently",
        "error_if_nonfinite=True, or check the returned norm",
    )
