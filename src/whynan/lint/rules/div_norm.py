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
    With an eps, a clamp, or for constants that are known not to be 0. A single vector, and an array that
    nobody differentiates, is `info`. In float16 `F.normalize`'s eps
    of 1e-12 is itself 0: compute in float32 there.
"""

from __future__ import annotations

from whynan.lint.facts import guarded_divisor, has_gradient, is_generic, says
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
        severity=None if _one_of_many(norm, term, here) else "info",
    )


def _one_of_many(norm: Term, term: Term, here: Walker) -> bool:
    """A zero among the rows of a trained tensor is likely; a single vector is usually known."""
    tensor = "tensor" in (term.kind, norm.kind)
    rows = norm.get("dim") is not None and tensor and has_gradient(term, here)
    return rows or strip(norm.args[0]).op == "relu"
