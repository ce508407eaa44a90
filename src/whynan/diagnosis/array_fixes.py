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


# CuPy and JAX have no `where` to divide with, and JAX has gradients.
OTHERS = {
    "division_by_zero": ("keep the divisor away from 0: `np.maximum(b, eps)`, or `np.where(b == 0, 1, b)` and choose afterwards",),
    "gradient_singularity": ("keep the argument away from that point before the operation, by `np.where` or `np.maximum`: afterwards is too late for its gradient",),
    "overflow": ("compute this in float64, or scale the operands down first", "for exponentials, subtract the maximum first, as `logsumexp` and `softmax` do"),
}  # fmt: skip
SHORT = {"jax": "jnp", "cupy": "cp"}


def array_fixes(mechanism: str, op: str) -> tuple[Fix, ...]:
    """The remedies for one mechanism, best first, in the words of the library that made the value."""
    library = op.rsplit(".", 1)[-1]
    titles = (OTHERS if library in SHORT else {}).get(mechanism) or TITLES.get(mechanism, ())
    short = SHORT.get(library, "np")
    return tuple(
        Fix(kind=f"array_{mechanism}", title=title.replace("`np.", f"`{short}.").replace("(np.", f"({short}."))
        for title in titles
    )  # fmt: skip
