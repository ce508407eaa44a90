"""The low-variance KL estimate, cancelled away.

What it catches
    `exp(d) - d - 1` in any order: the "k3" estimate used by policy-gradient trainers.

Why it hurts
    For small d three terms of size 1 cancel: at 1e-4 the result is 0.0 where it should be 5e-9. It
    overflows at 88 as every exp does.

Example
    kl = torch.exp(d) - d - 1

Use instead
    kl = torch.expm1(d) - d

When it is fine
    As a number on a plot. expm1 keeps most digits, a series for small |d| all of them.
"""

from __future__ import annotations

from whynan.lint.rewrite import call, operand
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import number_of, resolve, same_values, strip


@pattern("N073", "k3-kl", "info", ops=("sub",), fix="sometimes", rank=10, operands=2)
def k3_kl(term: Term, here: Walker) -> Match | None:
    inner = resolve(term.args[0])
    if inner.op != "sub" or len(inner.args) != 2:
        return None
    exp = strip(inner.args[0])
    rest = [t for t in (inner.args[1], term.args[1]) if number_of(t) != 1]
    if exp.op != "exp" or not exp.args or len(rest) != 1 or exp.lib in ("math", "numpy"):
        return None
    d = exp.args[0]
    if not same_values(d, rest[0]):
        return None
    edit = None
    if term.kind == "tensor" and resolve(inner.args[0]) is exp:
        again = operand(d, here).replace("{", "{{").replace("}", "}}")
        edit = call(term, here, "torch.expm1", d, uses=[rest[0]], shape=f"{{}} - {again}")
    return Match(
        term,
        "`exp(d) - d - 1` cancels for small d: at 1e-4 it is 0, not 5e-9",
        "torch.expm1(d) - d",
        edit=edit,
        covers=(term.args[0],),
    )
