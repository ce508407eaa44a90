"""Binary cross entropy of a sigmoid.

What it catches
    `binary_cross_entropy` or `BCELoss` given the result of a sigmoid: in one expression, through
    variables, `nn.Sequential`, attributes and the `forward` of a model here.

Why it hurts
    sigmoid rounds to exactly 1 at 17 in float32. The loss is then clamped to 100 where the true one
    is 17, and the gradient is exactly 0: a confident mistake is never corrected.

Example
    loss = F.binary_cross_entropy(torch.sigmoid(logits), target)

Use instead
    loss = F.binary_cross_entropy_with_logits(logits, target)

When it is fine
    When the probabilities do not come from a sigmoid.
"""

from __future__ import annotations

from whynan.lint.rewrite import call, other_arguments
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip


@pattern("N062", "bce-sigmoid", "warning", ops=("binary_cross_entropy",), fix="sometimes", rank=10)
def bce_sigmoid(term: Term, here: Walker) -> Match | None:
    if not term.args or term.form == "method":
        return None
    sigmoid = strip(term.args[0])
    if sigmoid.op != "sigmoid":
        return None
    edit = None
    # The sigmoid stands in the call itself: nothing else uses its value.
    inline = term.args[0] is sigmoid and sigmoid.form in ("call", "method")
    rest = other_arguments(term, here) if inline and sigmoid.kind == "tensor" else None
    if rest is not None:
        edit = call(
            term, here, "torch.nn.functional.binary_cross_entropy_with_logits", sigmoid.args[0],
            *rest, uses=[*term.args[1:], *term.kw.values()],
        )  # fmt: skip
    return Match(
        term,
        "binary cross entropy of a sigmoid has gradient 0 from a logit of 17 on (bfloat16: 7)",
        "F.binary_cross_entropy_with_logits(x, y), or BCEWithLogitsLoss, on the logits",
        edit=edit,
        of_slope=True,
    )
