"""Softplus written by hand.

What it catches
    `log(1 + exp(x))`, `log1p(exp(x))` and NumPy's forms of them, for an x that nothing bounds.

Why it hurts
    exp overflows at 88.8 in float32 (11.1 in float16): the value is inf and the gradient NaN.

Example
    loss = torch.log(1 + torch.exp(x)).mean()

Use instead
    loss = F.softplus(x).mean()

When it is fine
    Where x cannot be positive, such as `log1p(exp(-x.abs()))`: nothing is said there. In float64
    `torch.logaddexp(x, zero)` keeps the last digits that softplus drops above its threshold of 20.
"""

from __future__ import annotations

import re

from whynan.lint.facts import bounded_above, one_plus, tested
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, strip

HANDLED = re.compile(r"isinf|== ?(float\(.inf|torch\.inf|math\.inf)")


@pattern("N050", "log1p-exp", "error", ops=("log", "log1p"), fix="sometimes", rank=10)
def log1p_exp(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner = term.args[0] if term.op == "log1p" else one_plus(term.args[0])
    exp = strip(inner) if inner is not None else None
    if inner is None or exp is None or exp.op != "exp" or not exp.args:
        return None
    x = exp.args[0]
    if HANDLED.search(here.body):
        return None
    if bounded_above(x) or (tested(x, here) and (term.lib == "math" or here.no_grad)):
        return None
    edit = None
    if resolve(inner) is exp:
        if term.lib == "numpy":
            edit = call(term, here, "numpy.logaddexp", "0", x)
        elif term.lib != "math" and exp.lib != "math":
            edit = call(term, here, "torch.nn.functional.softplus", x)
    better = "np.logaddexp(0, x)" if term.lib == "numpy" else "F.softplus(x)"
    return Match(
        term,
        "`log(1 + exp(x))` is inf with a NaN gradient from x = 89 on (float16: 11)",
        f"{better} does not overflow",
        edit=edit,
        severity="warning" if term.lib == "math" else None,
    )
