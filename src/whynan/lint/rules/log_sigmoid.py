"""Logarithm of a sigmoid.

What it catches
    `log(sigmoid(x))`, in one expression or through variables, also with a small eps added.

Why it hurts
    sigmoid rounds to 0 below about -104 (in float16 below -18), and its logarithm is -inf; the
    gradient is NaN from -89 on. With 1e-8 added the gradient is dead from -18 on.

Example
    loss = -torch.log(torch.sigmoid(score)).mean()

Use instead
    loss = -F.logsigmoid(score).mean()

When it is fine
    Never better than `logsigmoid`. Integer tensors have no `logsigmoid`; a score is not one.
"""

from __future__ import annotations

from whynan.lint.facts import has_gradient, small_eps_added
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import known_small, resolve, strip
from whynan.lint.training import of_eps
from whynan.ops.table import that

CONSTANT = that("constant")


@pattern("N012", "log-sigmoid", "error", ops=("log",), fix="sometimes", rank=10)
def log_sigmoid(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner, eps = small_eps_added(term.args[0])
    sigmoid = strip(inner)
    if sigmoid.op != "sigmoid" or not sigmoid.args or term.lib == "numpy" or term.kind == "array":
        return None
    if strip(sigmoid.args[0]).op in CONSTANT:
        return None  # a table of numbers that are known
    if eps and not has_gradient(term, here):
        return None
    direct = resolve(inner) is sigmoid and sigmoid.form in ("call", "method")
    edit = call(term, here, "torch.nn.functional.logsigmoid", sigmoid.args[0]) if direct else None
    message = (
        "`log` of a sigmoid: the added eps stops the gradient below about -18"
        if eps
        else "`log` of a sigmoid is -inf below -104 and its gradient NaN below -89 (float16: -18)"
    )
    return Match(
        term,
        message,
        "F.logsigmoid(x) is exact for every x",
        edit=edit if not eps or known_small(term.args[0]) else None,
        severity="info" if not has_gradient(term, here) else of_eps(here) if eps else None,
        of_slope=eps,
    )
