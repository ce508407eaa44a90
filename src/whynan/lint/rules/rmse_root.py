"""Root of a mean squared error.

What it catches
    `sqrt(mse_loss(a, b))`, `sqrt(nn.MSELoss()(a, b))` and `((a - b) ** 2).mean().sqrt()` where gradients
    flow, without an eps inside the root.

Why it hurts
    Where the error is exactly 0 the slope of sqrt is infinite and that of the square is 0: the gradient
    is NaN. One batch that is fitted exactly, or empty targets, ruins the weights.

Example
    loss = torch.sqrt(F.mse_loss(x, target))

Use instead
    loss = torch.sqrt(F.mse_loss(x, target) + 1e-8)

When it is fine
    Without gradients, as in evaluation, and with an eps inside the root.
"""

from __future__ import annotations

import re

from whynan.lint.facts import has_gradient, is_square, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip
from whynan.lint.vanishing import is_generic

TRAINS = re.compile(r"loss|criterion|forward|train|closure|objective", re.I)


@pattern("N021", "rmse-root", "warning", ops=("sqrt", "pow"), rank=25)
def rmse_root(term: Term, here: Walker) -> Match | None:
    if not term.args or (term.op == "pow" and term.const("exponent") != 0.5):
        return None
    if term.kind != "tensor" or term.lib in ("numpy", "math") or not has_gradient(term, here):
        return None
    inner = strip(term.args[0])
    if not _is_error(inner) or tested(term.args[0], here) or is_generic(inner):
        return None
    trains = here.function is not None and TRAINS.search(f"{here.function.name} {_class_of(here)}")
    return Match(
        term,
        "the root of a mean squared error has a NaN gradient where the error is exactly 0",
        "add a small eps inside the root: sqrt(mse + 1e-8)",
        severity=None if trains else "info",
    )


def _is_error(term: Term) -> bool:
    if term.op == "mse_loss":
        return True
    if term.op != "mean" or not term.args or term.lib == "numpy":
        return False
    base = is_square(term.args[0])
    return base is not None and strip(base).op == "sub"


def _class_of(here: Walker) -> str:
    own = here.reader.own_class
    return own.name if own is not None else ""
