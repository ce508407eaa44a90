"""Square root at the edge of its domain.

What it catches
    `sqrt` of a `clamp(min=0)`, of `1 - x**2`, and an eps that was added outside the root of
    a sum or mean of squares; `rsqrt` of a variance or a sum of squares without any eps.

Why it hurts
    The slope of sqrt at 0 is infinite. `clamp(min=0)` lets the gradient through at its bound, so inf
    reaches the weights, and `sqrt(x) + eps` does nothing about the slope. Rounding makes `1 - x**2`
    negative: NaN.

Example
    sine = torch.sqrt(1 - cosine ** 2)

Use instead
    sine = torch.sqrt((1 - cosine ** 2).clamp(min=1e-12))

When it is fine
    Without gradients, for noise schedules and other constants, and with an eps inside the root.
"""

from __future__ import annotations

from whynan.lint.facts import (
    SCHEDULE,
    has_gradient,
    is_eps,
    is_square,
    one_minus,
    summed_square,
    tested,
)
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in, strip
from whynan.lint.vanishing import distance
from whynan.ops.table import that

# What people do to a root against 0, too late for its slope.
OUTSIDE = tuple(sorted({"add", "max"} | that("floor")))


@pattern("N021", "sqrt-edge", "warning", ops=("sqrt", "rsqrt", *OUTSIDE), rank=30)
def sqrt_edge(term: Term, here: Walker) -> Match | None:
    if not term.args or not has_gradient(term, here) or term.lib in ("numpy", "math"):
        return None
    if term.op in OUTSIDE:
        return _eps_outside(term, here)
    if any(SCHEDULE.search(name) for name in names_in(term)) or tested(term.args[0], here):
        return None
    inner = strip(term.args[0])
    if term.op == "rsqrt" and (inner.op == "var" or summed_square(inner) or _mean_square(inner)):
        if term.kind != "tensor":
            return None
        return Match(
            term,
            "`rsqrt` is inf, and its gradient NaN, where all values are equal or 0",
            "add an eps inside: torch.rsqrt(x + 1e-6)",
            severity=None if inner.op == "var" or _is_fed(inner, here) else "info",
        )
    # Not of a relu: its own gradient is 0 there, whatever comes in. `clamp` lets it through at its bound.
    if inner.op in ("clamp", "clamp_min") and inner.const("min") == 0:
        if term.kind != "tensor":
            return None
        return Match(
            term,
            f"the gradient of `sqrt` is inf where `{inner.op}` gave 0",
            "keep the operand above 0: .clamp(min=1e-12) in float32",
            severity=None if inner.args and _reaches_its_bound(inner.args[0]) else "info",
        )
    rest = one_minus(inner)
    base = is_square(rest) if rest is not None else None
    if base is not None and strip(base).op == "clamp":
        return None
    if base is not None and term.kind == "tensor" and not any(map(SCHEDULE.search, names_in(base))):
        return Match(
            term,
            "`sqrt(1 - x**2)` has an infinite gradient at |x| = 1 and is NaN just beyond",
            "keep the operand above 0: (1 - x**2).clamp(min=1e-12)",
        )
    return None


def _reaches_its_bound(term: Term) -> bool:
    """Exactly 0 on ordinary input: `1 - x**2`, a variance, a square, a difference of squares."""
    t = strip(term)
    if one_minus(t) is not None or t.op in ("var", "square") or is_square(t) is not None:
        return True
    parts = t.args if t.op in ("add", "sub") else ()
    return t.op == "sum" or any(is_square(a) or summed_square(a) or _mean_square(strip(a)) for a in parts)  # fmt: skip


def _mean_square(term: Term) -> bool:
    return term.op == "mean" and bool(term.args) and is_square(term.args[0]) is not None


def _is_fed(square: Term, here: Walker) -> bool:
    """What a layer is given, of which something may be 0; weights and styles are not."""
    base = is_square(square.args[0]) if square.args else None
    own = here.reader.own_class
    is_layer = own is not None and own.is_module and here.function is not None
    given = base is not None and is_layer and strip(base).op == "param"
    return given or (base is not None and distance(base))


def _eps_outside(term: Term, here: Walker) -> Match | None:
    bound = term.get("min") if term.op == "clamp" else term.args[1] if len(term.args) == 2 else None
    if bound is None or not is_eps(bound) or here.function is None:
        return None
    root = strip(term.args[0])
    if root.op != "sqrt" or not root.args or root.kind != "tensor" or root.lib == "numpy":
        return None
    inner = strip(root.args[0])
    if inner.op not in ("sum", "mean", "var") or not inner.args or here.function.name == "step":
        return None
    if inner.op != "var" and is_square(inner.args[0]) is None:
        return None
    return Match(
        term,
        f"{'an eps' if term.op == 'add' else 'a bound'} outside the root leaves the gradient of `sqrt` infinite at 0",
        "move it inside: sqrt(x + eps)",
        covers=(root,),
    )
