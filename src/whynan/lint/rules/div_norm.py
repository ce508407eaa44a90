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

from whynan.lint.facts import guarded_divisor, has_gradient, is_square, says
from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, same_values, strip, walk_through
from whynan.lint.vanishing import is_generic, whole_vector


@pattern("N010", "div-norm", "warning", ops=("div",), fix="sometimes", rank=10, operands=2)
def div_norm(term: Term, here: Walker) -> Match | None:
    norm = strip(term.args[1])
    x = term.args[0]
    if norm.op == "sqrt" and norm.args and (found := _by_its_root(term, norm, here)) is not None:
        return found
    if norm.op != "norm" or not norm.args:
        return None
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
        severity=None if whole_vector(x) and has_gradient(term, here) else "info",
    )


def _by_its_root(term: Term, root: Term, here: Walker) -> Match | None:
    """`x / x.pow(2).mean(-1).sqrt()`, an RMS norm without its eps."""
    mean = strip(root.args[0])
    base = is_square(mean.args[0]) if mean.op in ("mean", "sum") and mean.args else None
    if base is None or not same_values(term.args[0], base) or guarded_divisor(term.args[1], here):
        return None
    return Match(
        term,
        "a division by the root of a mean square is 0 / 0 = NaN for a zero vector",
        "add an eps inside the root: torch.rsqrt(mean + 1e-6)",
        elsewhere="add an eps inside the root",
        severity="info",
    )
