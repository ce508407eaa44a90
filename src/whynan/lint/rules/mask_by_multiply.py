"""A bad value removed after it was made.

What it catches
    `log(x) * mask` and `nan_to_num(f(x))`, where f is a logarithm, a root or a division that nothing
    guards.

Why it hurts
    0 times -inf is NaN, so multiplying by a mask removes nothing. `nan_to_num` cleans the value, but
    the gradient of f is still infinite there, and 0 times inf is NaN.

Example
    loss = -(torch.log(p) * mask).sum()

Use instead
    loss = -torch.log(torch.where(mask, p, 1.0)).sum()

When it is fine
    Without gradients, for `nan_to_num`; where the operand cannot be 0.
"""

from __future__ import annotations

from whynan.lint.facts import AT_ZERO, has_gradient, is_mask, nonzero, one_minus, tested
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, number_of, strip


@pattern("N021", "mask-by-multiply", "warning", ops=("mul", "nan_to_num"), rank=30)
def mask_by_multiply(term: Term, here: Walker) -> Match | None:
    if not has_gradient(term, here) or not term.args:
        return None
    if term.op == "nan_to_num":
        inner = strip(term.args[0])
        if (
            term.lib == "numpy"
            or term.kind == "array"
            or not _unguarded(inner, here, divisions=here.function is not None)
        ):
            return None
        return Match(
            term,
            f"`nan_to_num` cleans the value of `{_word(inner)}`, not its gradient: that is still NaN",
            "make the operand harmless first: f(torch.where(ok, x, 1.0))",
            severity="info" if inner.op == "div" else None,
        )
    for value, mask in (term.args, term.args[::-1]) if len(term.args) == 2 else ():
        inner = strip(value)
        if is_mask(mask) and not is_mask(value) and _unguarded(inner, here, divisions=False):
            if inner.op == "sqrt" or names_in(mask) & names_in(value):
                continue  # a root is finite; `m * log(m)` is p-log-p
            return Match(
                term,
                f"multiplying by a mask does not remove the -inf of `{inner.op}`: 0 times inf is NaN",
                "make the operand harmless first: log(torch.where(mask, x, 1.0))",
            )
    return None


def _word(term: Term) -> str:
    return "a division" if term.op == "div" else term.op


def _unguarded(term: Term, here: Walker, divisions: bool) -> bool:
    if term.lib in ("numpy", "math") or not term.args:
        return False
    if term.op in AT_ZERO:
        x = term.args[0]
        if strip(one_minus(x) or x).op in ("softmax", "sigmoid"):
            return False  # log-softmax and log-sigmoid speak of these
        constant = x.kind == "scalar" or (
            strip(x).op == "name" and str(strip(x).value).startswith("self.")
        )
        return not constant and not nonzero(x) and not tested(x, here)
    if term.op == "div" and divisions and len(term.args) == 2:
        x = term.args[1]
        return (
            x.kind == "tensor" and number_of(x) is None and not nonzero(x) and not tested(x, here)
        )
    return False
