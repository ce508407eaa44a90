"""Logit written by hand.

What it catches
    `log(p / (1 - p))` for a p that nothing keeps inside (0, 1).

Why it hurts
    At p = 1 the quotient is inf and at p = 0 its logarithm is -inf; the gradient is NaN at both,
    because an infinite and a zero slope are multiplied. Near 1 digits are lost twice.

Example
    z = torch.log(p / (1 - p))

Use instead
    z = torch.logit(p, eps=1e-6)

When it is fine
    After a clamp of p on both sides: nothing is said there. `torch.logit(p)` without eps is still
    infinite at 0 and 1, with an infinite gradient rather than NaN.
"""

from __future__ import annotations

from whynan.lint.facts import Sure, log_of_one_minus, nonzero, one_minus, tested
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import mentions, resolve, same_values, strip, walk


@pattern("N021", "logit-hand", "warning", ops=("log", "sub"), fix="sometimes", rank=10)
def logit_hand(term: Term, here: Walker) -> Match | None:
    if term.kind == "scalar" or not term.args:
        return None
    if term.op == "sub":  # log(p) - log(1 - p)
        logs = [strip(a) for a in term.args]
        if any(log.op not in ("log", "log1p") or not log.args for log in logs):
            return None
        quotient, p = term, logs[0].args[0]
        rest = log_of_one_minus(logs[1], logs[1].args[0]) if logs[0].op == "log" else None
    else:
        quotient = strip(term.args[0])
        if quotient.op != "div" or len(quotient.args) != 2:
            return None
        p, rest = quotient.args[0], one_minus(quotient.args[1])
    if (
        rest is None
        or not same_values(p, rest)
        or strip(p).op == "const"
        or resolve(p).op == "tensor"
    ):
        return None
    if strip(p).op == "rand" or nonzero(p) is Sure.YES or tested(p, here):
        return None
    if any(t.op == "compare" and mentions(t, p) for b in here.env.values() for t in walk(b)):
        return None  # which of them are inside (0, 1) is looked at separately
    edit = None
    if term.kind == "tensor" and (term.op == "sub" or resolve(term.args[0]) is quotient):
        edit = call(term, here, "torch.logit", p)
    return Match(
        term,
        "`log(p / (1 - p))` has a NaN gradient at p = 0 and p = 1",
        "torch.logit(p), with eps= to keep it finite",
        edit=edit,
        covers=term.args if term.op == "sub" else (quotient,),
    )
