"""Sigmoid, silu or tanh written by hand.

What it catches
    `1 / (1 + exp(-x))`, `x / (1 + exp(-x))` and `(exp(x) - exp(-x)) / (exp(x) + exp(-x))`.

Why it hurts
    exp overflows at 88.8 in float32 (11.1 in float16). The sigmoid's value is then right, but its
    gradient is NaN; the tanh is inf / inf = NaN.

Example
    gate = 1 / (1 + torch.exp(-x))

Use instead
    gate = torch.sigmoid(x)

When it is fine
    In NumPy the sigmoid is only a warning on the terminal: nothing is said there.
"""

from __future__ import annotations

from whynan.lint.facts import bounded_above, cut_off, one_plus
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, same, same_values, strip


@pattern(
    "N021", "sigmoid-hand", "warning", ops=("div", "reciprocal", "pow"), fix="sometimes", rank=10
)
def sigmoid_hand(term: Term, here: Walker) -> Match | None:
    if term.op == "div" and len(term.args) == 2 and (found := _tanh(*term.args)) is not None:
        name = "numpy.tanh" if term.kind == "array" else "torch.tanh"
        if bounded_above(found) or term.kind == "scalar":
            return None
        return Match(
            term,
            "tanh from exponentials is inf / inf = NaN from |x| = 89 on (float16: 11)",
            f"{name.replace('numpy', 'np')}(x)",
            severity="error",
            edit=call(term, here, name, found) if term.kind in ("tensor", "array") else None,
        )
    if term.op == "pow" and term.const("exponent") != -1:
        return None
    bottom = one_plus(term.args[0 if term.op == "pow" else -1]) if term.args else None
    exp = strip(bottom) if bottom is not None else None
    if exp is not None and (quotient := _of_two_exponentials(term, exp, here)) is not None:
        return quotient
    if exp is None or exp.op != "exp" or not exp.args or term.kind != "tensor" or cut_off(exp):
        return None
    negative = strip(exp.args[0])
    if negative.op != "neg" or bounded_above(exp.args[0]):
        return None
    x = negative.args[0]
    if term.op in ("reciprocal", "pow") or number_of(term.args[0]) == 1:
        name, word = "torch.sigmoid", "sigmoid"
    elif same_values(term.args[0], x):
        name, word = "torch.nn.functional.silu", "silu"
    else:
        return None
    return Match(
        term,
        f"{word} from `exp(-x)` has a NaN gradient below x = -89 (float16: -11)",
        f"{name.replace('torch.nn.functional', 'F')}(x)",
        edit=call(term, here, name, x),
    )


def _of_two_exponentials(term: Term, exp: Term, here: Walker) -> Match | None:
    """`e / (1 + e)` with e an exponential."""
    if term.op != "div" or exp.op != "exp" or not exp.args or not same(strip(term.args[0]), exp):
        return None
    if bounded_above(exp.args[0]) or term.kind not in ("tensor", "array"):
        return None
    return Match(
        term,
        "a sigmoid from `exp(x)` is inf / inf = NaN from x = 89 on (float16: 11)",
        "torch.sigmoid(x)",
        elsewhere="scipy.special.expit(x)",
        severity="error",
        edit=call(term, here, "torch.sigmoid", exp.args[0]) if term.kind == "tensor" else None,
    )


def _tanh(top: Term, bottom: Term) -> Term | None:
    a, b = strip(top), strip(bottom)
    if a.op != "sub" or b.op != "add" or not all(map(same, a.args, b.args)):
        return None
    up, down = strip(a.args[0]), strip(a.args[1])
    if up.op != "exp" or down.op != "exp" or not up.args or not down.args:
        return None
    negative = strip(down.args[0])
    x = up.args[0]
    return x if negative.op == "neg" and same_values(negative.args[0], x) else None
