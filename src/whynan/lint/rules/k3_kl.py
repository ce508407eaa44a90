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

from collections.abc import Iterator

from whynan.lint.finding import Edit, Match, hit
from whynan.lint.flow import Walker
from whynan.lint.rewrite import function, movable, operand, text
from whynan.lint.table import pattern
from whynan.lint.terms import Term, number_of, resolve, same_values, strip


@pattern("N073", "k3-kl", "info", ops=("sub", "add"), fix="sometimes", rank=10)
def k3_kl(term: Term, here: Walker) -> Match | None:
    parts = list(_summands(term, 1))
    if len(parts) != 3:
        return None
    exps = [t for sign, t in parts if sign > 0 and t.op == "exp" and t.args]
    ones = [t for sign, t in parts if number_of(t) == (-1 if sign > 0 else 1)]
    rest = [t for sign, t in parts if sign < 0 and t.op != "exp" and number_of(t) is None]
    if len(exps) != 1 or len(ones) != 1 or len(rest) != 1 or exps[0].lib in ("math", "numpy"):
        return None
    d = exps[0].args[0]
    if not same_values(d, rest[0]) and not same_values(d, resolve(rest[0])):
        return None
    edit = None
    if term.kind == "tensor" and movable(d, term, here) and d.op == "name":
        name, needs = function("torch.expm1", here)
        edit = Edit(node=term.node, text=f"({name}({text(d, here)}) - {operand(d, here)})", needs=needs)
    covers = tuple(a for a in term.args if a.op in ("sub", "add"))
    return hit(
        term,
        "`exp(d) - d - 1` cancels for small d: at 1e-4 it is 0, not 5e-9",
        "torch.expm1(d) - d",
        edit=edit,
        covers=covers,
    )


def _summands(term: Term, sign: int, depth: int = 3) -> Iterator[tuple[int, Term]]:
    t = term if depth == 3 else strip(term)
    if t.op in ("add", "sub") and len(t.args) == 2 and depth:
        yield from _summands(t.args[0], sign, depth - 1)
        yield from _summands(t.args[1], sign if t.op == "add" else -sign, depth - 1)
    else:
        yield sign, t
