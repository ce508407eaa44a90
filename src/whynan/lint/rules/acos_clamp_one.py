"""Arc cosine clamped at exactly 1.

What it catches
    `acos(x.clamp(-1, 1))` and clamps so close to 1 that float32 rounds them to 1. The same of `asin`,
    `atanh` and `erfinv`, of `acosh(x.clamp(min=1))` and of `logit(p.clamp(0, 1))`.

Why it hurts
    The slope of acos at 1 is infinite, and the clamp lets the gradient through at its bound: equal
    vectors give -inf. `1 - 1e-8` is exactly 1 in float32; float16 needs 1e-3, bfloat16 4e-3. `atanh`,
    `erfinv` and `logit` are infinite there themselves.

Example
    angle = torch.acos(cosine.clamp(-1, 1))

Use instead
    angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))

When it is fine
    Without gradients. The inner clamp costs up to 1.4e-3 rad at the ends.
"""

from __future__ import annotations

from whynan.lint.facts import has_gradient
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import strip
from whynan.ops.op import Op
from whynan.ops.table import TABLE

# Functions of one number with an edge elsewhere than at 0.
EDGED = {op.name: op for op in TABLE if op.reads == "elementwise" and op.of == "self" and any(op.singular)}  # fmt: skip
ROUNDED = 3e-8  # so close to 1 that float32 makes it 1


@pattern("N021", "acos-clamp-one", "warning", ops=tuple(EDGED), rank=10)
def acos_clamp_one(term: Term, here: Walker) -> Match | None:
    if not term.args or term.lib in ("numpy", "math") or not has_gradient(term, here):
        return None
    clamp, known = strip(term.args[0]), EDGED[term.op]
    if term.kind != "tensor" or term.get("eps") or clamp.op not in ("clamp", "clamp_min", "clamp_max"):  # fmt: skip
        return None
    for bound in (clamp.const("max"), clamp.const("min")):
        edge = _edge(bound, known)
        if edge is None:
            continue
        exact = f"{edge:g}" if bound == edge else f"{bound!r}, which is {edge:g} in float32"
        what = f"the gradient of `{term.op}`" if edge in known.slope else f"`{term.op}`"
        return Match(term, f"{what} is infinite where the clamp gives {exact}", _instead(known))
    return None


def _edge(bound: object, known: Op) -> float | None:
    """The edge that a bound lies on, if only by rounding."""
    if not isinstance(bound, int | float):
        return None
    near = (edge for edge in known.singular if abs(bound - edge) <= ROUNDED * abs(edge))
    return next(near, None)


def _instead(known: Op) -> str:
    if known.name in ("acos", "asin"):
        return "clamp to -1 + 1e-6 and 1 - 1e-6, or take the angle from atan2"
    return f"clamp to the inside of {known.domain}, by about 1e-6 in float32"
