"""Logarithm of a softmax.

What it catches
    `log(softmax(x))`, in one expression or through variables, also with a small eps added, and the same
    with `log2` and `log10`.

Why it hurts
    softmax rounds to exactly 0 once two logits differ by about 104 in float32 (18 in float16), and
    its logarithm is -inf with a NaN gradient. An added 1e-8 hides it: the value stops at -18.4 and
    the gradient, which should be 1, is 2e-14.

Example
    logp = torch.log(torch.softmax(logits, dim=-1))

Use instead
    logp = F.log_softmax(logits, dim=-1)

When it is fine
    Never better than `log_softmax`, which is also faster.
"""

from __future__ import annotations

from whynan.lint.facts import has_gradient, small_eps_added
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import known_small, resolve, strip
from whynan.lint.training import of_eps

LOGARITHMS = ("log", "log2", "log10")
BASE = {"log": "", "log2": " / math.log(2)", "log10": " / math.log(10)"}


@pattern("N012", "log-softmax", "error", ops=LOGARITHMS, fix="sometimes", rank=10)
def log_softmax(term: Term, here: Walker) -> Match | None:
    inner, eps = small_eps_added(term.args[0]) if term.args else (term, False)
    softmax = strip(inner)
    if softmax.op != "softmax" or not softmax.args or softmax.lib == "numpy":
        return None
    if eps and not has_gradient(term, here):
        return None
    dim = softmax.get("dim")
    # A gather or an index between the two would be lost by rewriting the logarithm alone.
    direct = resolve(inner) is softmax and softmax.form in ("call", "method")
    edit = None
    if dim is not None and direct and term.op == "log":
        edit = call(term, here, "torch.nn.functional.log_softmax", softmax.args[0], dim=dim)
    symptom = (
        ": the added eps bounds the value, and the gradient dies where it matters most"
        if eps
        else " is -inf with a NaN gradient once two logits differ by 104 (18 in float16)"
    )
    return Match(
        term,
        f"`{term.op}` of a softmax{symptom}",
        f"F.log_softmax(x, dim){BASE[term.op]} takes the logarithm before anything is rounded to 0",
        edit=edit if not eps or known_small(term.args[0]) else None,
        severity="info" if not has_gradient(term, here) else of_eps(here) if eps else None,
        of_slope=eps,
    )
