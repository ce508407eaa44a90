"""What to change where the origin is an operation on arrays: the rules' own advice is for torch."""

from __future__ import annotations

from whynan.model import Fix

TITLES = {
    "division_by_zero": ("divide only where the divisor is not 0: `np.divide(a, b, out=np.zeros_like(a), where=b != 0)`", "or keep the divisor away from 0: `np.maximum(b, eps)`"),
    "log_nonpositive": ("keep the argument above 0: `np.log(np.maximum(x, 1e-12))`, or `np.log1p(x)` for counts",),
    "sqrt_negative": ("keep the argument at or above 0: `np.sqrt(np.maximum(x, 0))`",),
    "invalid_domain": ("bring the argument into the function's domain first: `np.clip(x, low, high)`",),
    "overflow": ("compute this in float64, or scale the operands down first", "for exponentials, subtract the maximum first, as `scipy.special.logsumexp` and `softmax` do"),
    "inf_minus_inf": ("remove the infinities before this operation: `np.isfinite` finds them",),
    "empty_reduction": ("take it only where there is something to take it over: test `x.size` first",),
}  # fmt: skip


def array_fixes(mechanism: str) -> tuple[Fix, ...]:
    """The remedies for one mechanism, best first."""
    return tuple(Fix(kind=f"array_{mechanism}", title=title) for title in TITLES.get(mechanism, ()))
