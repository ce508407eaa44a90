"""Arc cosine clamped at exactly 1.

What it catches
    `acos(x.clamp(-1, 1))` and clamps so close to 1 that float32 rounds them to 1.

Why it hurts
    The slope of acos at 1 is infinite, and the clamp lets the gradient through at its bound: equal
    vectors give -inf. `1 - 1e-8` is exactly 1 in float32; float16 needs 1e-3, bfloat16 4e-3.

Example
    angle = torch.acos(cosine.clamp(-1, 1))

Use instead
    angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))

When it is fine
    Without gradients. The inner clamp costs up to 1.4e-3 rad at the ends.
"""

from __future__ import annotations

from whynan.lint.facts import has_gradient
from whynan.lint.finding import Match, hit
from whynan.lint.flow import Walker
from whynan.lint.table import pattern
from whynan.lint.terms import Term, strip


@pattern("N021", "acos-clamp-one", "warning", ops=("acos", "asin"), rank=10)
def acos_clamp_one(term: Term, here: Walker) -> Match | None:
    if not term.args or term.lib in ("numpy", "math") or not has_gradient(term, here):
        return None
    clamp = strip(term.args[0])
    if clamp.op not in ("clamp", "clamp_max", "minimum"):
        return None
    high = clamp.const("max")
    if term.kind != "tensor" or not isinstance(high, int | float) or not 1 - 3e-8 < high <= 1:
        return None
    exact = "1" if high == 1 else f"{high!r}, which is 1 in float32,"
    return hit(
        term,
        f"the gradient of `{term.op}` is infinite where the clamp gives {exact}".rstrip(","),
        "clamp to -1 + 1e-6 and 1 - 1e-6, or take the angle from atan2",
    )
