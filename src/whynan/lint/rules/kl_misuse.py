"""KL divergence given the wrong kind of arguments.

What it catches
    `kl_div` whose input is a softmax instead of its logarithm; whose target is a log_softmax without
    `log_target=True`; or which is called without a `reduction`.

Why it hurts
    The input must be log-probabilities: for two equal distributions the misuse gives -1.19 instead of
    0. A log target without the flag gives NaN. The default reduction divides by the number of
    elements instead of the batch: 0.077 instead of 0.774.

Example
    loss = F.kl_div(F.softmax(student, dim=-1), teacher_probs, reduction="batchmean")

Use instead
    loss = F.kl_div(F.log_softmax(student, dim=-1), teacher_probs, reduction="batchmean")

When it is fine
    With log-probabilities first and `reduction="batchmean"` (or a reduction that was chosen).
"""

from __future__ import annotations

from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip


@pattern("N064", "kl-misuse", "error", ops=("kl_div",), rank=10)
def kl_misuse(term: Term, here: Walker) -> Match | None:
    if (
        term.lib != "torch"
        or term.form not in ("call", "module")
        or not term.args
        or "**" in term.kw
    ):
        return None
    if strip(term.args[0]).op in ("softmax", "sigmoid"):
        return Match(
            term,
            "the first argument of `kl_div` must be log-probabilities; given probabilities even equal distributions differ",
            "pass log_softmax(x, dim) first",
        )
    target = term.get("target")
    if target is not None and strip(target).op == "log_softmax" and term.get("log_target") is None:
        return Match(
            term,
            "the target of `kl_div` is a log-probability: its logarithm is NaN",
            "pass log_target=True, or probabilities as the target",
        )
    if not any(term.get(name) is not None for name in ("reduction", "reduce", "size_average")):
        return Match(
            term,
            "`kl_div` without a reduction divides by the number of elements, not by the batch",
            'reduction="batchmean" is the divergence',
            severity="info",
        )
    return None
