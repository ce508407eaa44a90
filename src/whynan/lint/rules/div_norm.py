"""Division of a vector by its own length.

What it catches
    `x / x.norm(...)` without an eps or a clamp.

Why it hurts
    A zero vector (a padding row, a dead unit, a blank image) gives 0 / 0: value and gradient are NaN.

Example
    unit = x / x.norm(dim=-1, keepdim=True)

Use instead
    unit = F.normalize(x, dim=-1)

When it is fine
    With an eps, a clamp, or for constants that are known not to be 0. It is `info` where nothing says that
    a whole vector becomes 0, as a relu, a mask or a cross product do. In float16 `F.normalize`'s eps
    of 1e-12 is itself 0: compute in float32 there.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor, is_generic, is_mask, says
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, same_values, strip, walk_through


@pattern("N010", "div-norm", "warning", ops=("div",), fix="sometimes", rank=10, operands=2)
def div_norm(term: Term, here: Walker) -> Match | None:
    norm = strip(term.args[1])
    if norm.op != "norm" or not norm.args:
        return None
    x = term.args[0]
    if not same_values(x, norm.args[0]) or guarded_divisor(term.args[1], here):
        return None
    if strip(x).op in ("const", "tuple", "randn", "ones", "eye") or is_generic(x):
        return None
    if strip(x).op in ("normalize", "div"):
        return None  # it has been scaled before, and was not 0 then
    if says(x, r"(^|_|view|ray)(rays?|dirs?|directions?)(_|$)"):
        return None  # of cameras: never zero
    if any(t.op in ("ones", "ones_like") for t in walk_through(x)):
        return None  # one part of it is 1
    edit = None
    p = norm.const("p")
    euclidean = norm.get("p") is None or p == 2
    dim = norm.get("dim")
    direct = resolve(term.args[1]) is norm
    kept = isinstance(norm.const("dim"), int) and norm.const("keepdim") is True
    if direct and euclidean and kept and not here.half and term.kind == "tensor":
        edit = call(term, here, "torch.nn.functional.normalize", x, dim=dim)
    return Match(
        term,
        "`x / x.norm()` is 0 / 0 = NaN for a zero vector",
        "F.normalize(x, dim) leaves a zero vector at 0",
        elsewhere="add a small eps to the length",
        edit=edit,
        severity=None if _may_vanish(x) else "info",
    )


def _may_vanish(x: Term) -> bool:
    """Made so that all of it is 0 now and then: cut off, masked, or orthogonal to nothing."""
    t = strip(x)
    return t.op in ("relu", "cross") or (t.op == "mul" and any(map(is_mask, t.args)))
