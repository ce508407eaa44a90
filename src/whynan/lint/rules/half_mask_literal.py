"""A mask value that float16 cannot hold.

What it catches
    `masked_fill(mask, -1e9)` and other literals beyond 65,504, in a function or class that asks for
    float16 by name.

Why it hurts
    float16 ends at 65,504: masked_fill raises, an addition gives -inf, and a row that is masked
    entirely is then NaN after softmax.

Example
    scores = (q @ k.transpose(-1, -2)).half()
    scores = scores.masked_fill(mask, -1e9)

Use instead
    scores = (q @ k.transpose(-1, -2)).half()
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)

When it is fine
    In float32 and bfloat16.
"""

from __future__ import annotations

import math

from whynan.lint.facts import is_mask
from whynan.lint.rewrite import call, text
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, walk_through


@pattern(
    "N050",
    "half-mask-literal",
    "warning",
    ops=("masked_fill", "where", "mul"),
    fix="sometimes",
    rank=40,
)
def half_mask_literal(term: Term, here: Walker) -> Match | None:
    if not here.half or not term.args:
        return None
    edit = None
    if term.op == "masked_fill":
        value = term.get("value")
        x = term.args[0]
        if any(t.op in ("float", "double") for t in walk_through(x)):
            return None
        if x.op == "name" and value is not None and term.form == "method":
            dtype = f"{text(x, here)}.dtype"
            edit = call(term, here, "torch.finfo", dtype, uses=[x], shape="{}.min", instead=value)
    elif term.op == "where":
        value = next((a for a in term.args[1:] if isinstance(number_of(a), float)), None)
        if any(t.op in ("float", "double") for t in walk_through(term)):
            return None
    else:
        factors = term.args if len(term.args) == 2 else ()
        found = [a for a in factors if number_of(a) is not None and any(map(is_mask, factors))]
        value = found[0] if found else None
    number = number_of(value)
    if not isinstance(number, int | float) or not -math.inf < number < -65504:
        return None
    return Match(
        term,
        f"{number:g} does not fit into float16, which this code asks for",
        "torch.finfo(x.dtype).min fits every dtype",
        edit=edit,
    )
