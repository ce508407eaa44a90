"""Exponential of a predicted log-variance that nothing bounds.

What it catches
    `exp(logvar)`, `exp(0.5 * logvar)`, `exp(-log_scale)` where the log-variance comes from a network
    or a caller and no clamp, tanh, sigmoid or softplus lies between.

Why it hurts
    exp overflows at 88.8 in float32 (11.1 in float16). An untrained or diverging network gets there,
    and loss and gradient are inf.

Example
    kl = -0.5 * (1 + logvar - mu.pow(2) - torch.exp(logvar)).sum()

Use instead
    logvar = logvar.clamp(-30.0, 20.0)
    kl = -0.5 * (1 + logvar - mu.pow(2) - torch.exp(logvar)).sum()

When it is fine
    For a learned parameter of its own (it moves slowly), buffers, and where it was bounded before.
"""

from __future__ import annotations

import re

from whynan.lint.facts import bounded_above, has_gradient, is_bounded, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve, strip, walk_through
from whynan.ops.table import that

LOGVAR = re.compile(r"(^|_)log_?(var|variance|std|sigma|scale)s?(_|$)|(^|_)logvars?$|lnvar", re.I)
BOUNDS = that("constant") | {"softplus", "where", "patched", "tensor"}


@pattern("N050", "exp-logvar", "warning", ops=("exp",), rank=30, operands=1)
def exp_logvar(term: Term, here: Walker) -> Match | None:
    if not has_gradient(term, here) or term.lib in ("numpy", "math"):
        return None
    x = _inside(term.args[0])
    name = str(x.value if x.op == "name" else "")
    if not LOGVAR.search(name.rsplit(".", 1)[-1]) or name.startswith("self."):
        return None
    if bounded_above(term.args[0]) or x.kind == "scalar" or tested(x, here):
        return None
    for t in walk_through(x):
        parameter = t.op == "module" and t.value in ("Parameter", "Embedding")
        own = (
            t.op == "name" and str(t.value).startswith("self.") and resolve(t).op not in ("module",)
        )
        if t.op in BOUNDS or is_bounded(t.op) or parameter or (own and t is not x and resolve(t).op != "layer" and "forward" not in str(t.value) and _is_plain(x)):  # fmt: skip
            return None
    return Match(
        term,
        f"`exp({name})` overflows once it exceeds 88 (float16: 11), and so does its gradient",
        "bound it first: .clamp(-30.0, 20.0)",
        severity=None if here.half else "info",
    )


def _is_plain(x: Term) -> bool:
    """Is the variable only another name for an attribute?"""
    return strip(x).op in ("name", "module")


def _inside(term: Term) -> Term:
    """The variable in `0.5 * logvar`, `-logvar`, `logvar / 2`."""
    for _ in range(5):
        if term.op == "neg":
            term = term.args[0]
        elif term.op in ("mul", "div") and len(term.args) == 2:
            rest = [a for a in term.args if number_of(a) is None]
            if len(rest) != 1:
                return term
            term = rest[0]
        else:
            break
    return term
