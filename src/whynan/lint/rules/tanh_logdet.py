"""Log-determinant of tanh written by hand.

What it catches
    `log(1 - tanh(x)**2)`, also with a small eps added: the change of variables of a squashed
    Gaussian policy.

Why it hurts
    tanh rounds to 1 at about 9 in float32: the value is -inf and the gradient NaN. With 1e-6 added
    the gradient is 0 there, where the true one is -2.

Example
    correction = torch.log(1 - torch.tanh(u) ** 2 + 1e-6)

Use instead
    correction = 2 * (0.6931471805599453 - u - F.softplus(-2 * u))

When it is fine
    Where only tanh(x) is known, a clamp before the logarithm is the best there is.
"""

from __future__ import annotations

from whynan.lint.facts import is_square, log_of_one_minus, small_eps_added
from whynan.lint.rewrite import call, operand
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, strip


@pattern("N012", "tanh-logdet", "error", ops=("log", "log1p"), fix="sometimes", rank=10)
def tanh_logdet(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner, eps = small_eps_added(term.args[0])
    rest = log_of_one_minus(term, inner)
    base = is_square(rest) if rest is not None else None
    tanh = strip(base) if base is not None else None
    if tanh is None or base is None or tanh.op != "tanh" or not tanh.args:
        return None
    x = tanh.args[0]
    edit = None
    simple = strip(x).op in ("param", "name") or x.op == "name"
    if simple and resolve(base) is tanh and term.kind == "tensor":
        u = operand(x, here)
        edit = call(
            term, here, "torch.nn.functional.softplus", f"-2 * {u}", uses=[x],
            shape=f"2 * (0.6931471805599453 - {u} - {{}})",
        )  # fmt: skip
    return Match(
        term,
        "`log(1 - tanh(x)**2)`: the added eps stops the gradient where |x| is large"
        if eps
        else "`log(1 - tanh(x)**2)` is -inf with a NaN gradient from |x| = 9 on",
        "2 * (log(2) - x - F.softplus(-2 * x)) is the same value",
        edit=edit,
        severity="info" if eps else None,
    )
