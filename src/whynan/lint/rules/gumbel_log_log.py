"""Gumbel noise from a uniform draw that can be 0.

What it catches
    `-log(-log(u))` where u is drawn from [0, 1) and not clamped.

Why it hurts
    u is exactly 0 in 2 of 5e7 float32 draws, in 2,471 of 1e7 in float16 and in 1 of 512 in bfloat16:
    the noise is then -inf. A long training meets it.

Example
    noise = -torch.log(-torch.log(torch.rand_like(logits)))

Use instead
    noise = -torch.empty_like(logits).exponential_().log()

When it is fine
    With u clamped or shifted on both sides: nothing is said there. The better form draws other
    random numbers, so that a seeded run changes.
"""

from __future__ import annotations

from whynan.lint.facts import nonzero
from whynan.lint.rewrite import call, text
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve, strip


@pattern("N012", "gumbel-log-log", "info", ops=("log",), fix="sometimes", rank=10)
def gumbel_log_log(term: Term, here: Walker) -> Match | None:
    negative = strip(term.args[0]) if term.args else term
    log = strip(negative.args[0]) if negative.op == "neg" else negative
    if negative.op != "neg" or log.op != "log" or not log.args:
        return None
    u = strip(log.args[0])
    if u.op != "rand" or nonzero(log.args[0]) or _above_zero(u):
        return None
    edit = None
    spelled = text(u, here).split("(", 1)[0] if u.form == "call" else ""
    inline = (
        resolve(term.args[0]) is negative and log.args[0] is u and len(u.args) == 1 and not u.kw
    )
    if inline and spelled.endswith("rand_like"):
        edit = call(term, here, "torch.empty_like", u.args[0], shape="{}.exponential_().log()")
    return Match(
        term,
        "`-log(-log(u))` is -inf when u is exactly 0: rare in float32, 1 draw in 512 in bfloat16",
        "-torch.empty_like(x).exponential_().log() is Gumbel noise that is never infinite",
        edit=edit,
    )


def _above_zero(draw: Term) -> bool:
    """`x.uniform_(1e-5, 1 - 1e-5)`"""
    low = (
        draw.args[1] if draw.form == "method" and len(draw.args) > 1 else draw.kw.get("from", draw)
    )
    value = number_of(low)
    return isinstance(value, int | float) and value > 0
