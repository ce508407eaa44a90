"""An eps that float16 rounds to 0.

What it catches
    A literal below 6e-8 that is added to a divisor or to the operand of a logarithm or root, or used
    as the `min` of a clamp, in a function or class that asks for float16 by name.

Why it hurts
    The smallest float16 above 0 is 6e-8: `x + 1e-8` is x, `clamp(min=1e-8)` is a clamp at 0, and the
    logarithm or quotient is infinite as if no eps were there.

Example
    x = x.half()
    y = torch.log(x + 1e-8)

Use instead
    y = torch.log(x.float() + 1e-8)

When it is fine
    Where the operand is float32 again, and in bfloat16, whose range is that of float32. Under
    autocast alone nothing is said: it computes logarithms and sums in float32.
"""

from __future__ import annotations

from whynan.lint.facts import AT_ZERO
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, walk_through

WIDE = ("float", "double")


@pattern(
    "N081", "eps-below-dtype", "warning",
    ops=(*AT_ZERO, "div", "clamp", "clamp_min"), rank=60,
)  # fmt: skip
def eps_below_dtype(term: Term, here: Walker) -> Match | None:
    if not here.half or not term.args or term.kind in ("scalar", "array"):
        return None
    if term.op in ("clamp", "clamp_min"):
        small = term.get("min")
        operand = term.args[0]
    else:
        total = term.args[-1] if term.op == "div" else term.args[0]
        small = total.args[1] if total.op == "add" and len(total.args) == 2 else None
        operand = total.args[0] if total.args else total
    value = number_of(small)
    if not isinstance(value, float) or not 0 < value < 5.9e-8 or small is None:
        return None
    if operand.kind != "tensor" or any(
        t.op in WIDE or _is_float32(t) for t in walk_through(operand)
    ):
        return None
    return Match(
        term,
        f"{value:g} is 0 in float16, which this code asks for: the eps guards nothing",
        "compute in float32 (x.float()), or take torch.finfo(x.dtype).tiny",
    )


def _is_float32(term: Term) -> bool:
    return term.op == "cast" and any(
        a.op == "imported" and a.value in ("torch.float32", "torch.float", "torch.float64")
        for a in term.children
    )
