"""Negative log likelihood without the logarithm.

What it catches
    `nll_loss` (or `NLLLoss`) of a softmax, and of the logarithm of a softmax.

Why it hurts
    nll_loss takes log-probabilities and only picks one of them. Given probabilities it is bounded
    below by -1, and training pushes where it should not. The logarithm of a softmax is right until
    the softmax underflows: then the loss is inf.

Example
    loss = F.nll_loss(F.softmax(logits, dim=-1), target)

Use instead
    loss = F.cross_entropy(logits, target)

When it is fine
    With `log_softmax`: nothing is said there.
"""

from __future__ import annotations

from whynan.lint.rewrite import call, other_arguments
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip


@pattern("N063", "nll-softmax", "error", ops=("nll_loss",), fix="sometimes", rank=10)
def nll_softmax(term: Term, here: Walker) -> Match | None:
    if not term.args or term.form == "method":
        return None
    inner = strip(term.args[0])
    if inner.op == "softmax":
        return Match(
            term,
            "`nll_loss` expects log-probabilities; given a softmax it picks probabilities and is never above 0",
            "F.cross_entropy(logits, target), or log_softmax instead of softmax",
        )
    softmax = strip(inner.args[0]) if inner.op == "log" and inner.args else inner
    if inner.op != "log" or softmax.op != "softmax":
        return None
    edit = None
    inline = (
        term.args[0] is inner and inner.args[0] is softmax and softmax.form in ("call", "method")
    )
    # cross_entropy takes its classes in dimension 1, softmax wherever it is told.
    rest = other_arguments(term, here) if inline and softmax.const("dim") == 1 else None
    if rest is not None and len(term.args) <= 2:
        edit = call(
            term, here, "torch.nn.functional.cross_entropy", softmax.args[0], *rest,
            uses=[*term.args[1:], *term.kw.values(), *softmax.args[1:], *softmax.kw.values()],
        )  # fmt: skip
    return Match(
        term,
        "`nll_loss(log(softmax(x)))` is inf once two logits differ by 104 (18 in float16)",
        "F.cross_entropy(x, target)",
        edit=edit,
        covers=(inner,),
    )
