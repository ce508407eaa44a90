"""A derivative that is infinite or undefined.

What it catches
    A finite forward value whose slope is not finite: `sqrt` at 0, a fractional power at 0, `acos`
    at 1, `log` or a division in the unchosen branch of `torch.where`, repeated singular values.

Why it hurts
    The loss looks healthy, but `backward()` leaves NaN or inf in the gradients and the next
    optimizer step destroys the weights.

Example
    dist = (a - b).pow(2).sum(-1).sqrt()      # two equal rows: slope inf, times 0 is NaN

Use instead
    dist = torch.linalg.vector_norm(a - b, dim=-1)      # its gradient at 0 is 0

When it is fine
    When no gradient is asked for. Selecting the good branch with `where` afterwards does not help:
    0 times inf is NaN. Make the operand safe before the operation.
"""

from __future__ import annotations

import math

from whynan.diagnosis.log_fixes import log_fixes
from whynan.diagnosis.makers import BOUNDS, CHOOSING, double_where, why_no_gradient
from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import called, of_values, origin_label, subject
from whynan.model import Evidence, Finding, Fix, Operand, OpRecord, number
from whynan.ops.op import Op
from whynan.ops.table import forward_of, row

GUARDS = frozenset({"clamp_argument", "double_where"})
VECTOR_NORM = Fix(kind="vector_norm", title="use `torch.linalg.vector_norm` for a root of a sum of squares; its gradient at 0 is 0")  # fmt: skip
EPS_INSIDE = Fix(kind="eps_inside", title="add eps inside the root: `(x + 1e-12).sqrt()`")


@rule("N021", "gradient-singularity", "gradient_singularity")
def gradient_singularity(op: OpRecord, evidence: Evidence) -> Finding | None:
    if not op.derived or _overflowed(op):
        return None
    forward = forward_of(op.node) or short_call(op)
    known = row(forward)
    point, upstream_grad = _roles(op)
    observed = []
    if upstream_grad is not None:
        observed.append(f"the incoming gradient there is {number(upstream_grad.value)}")
    if _at_an_edge(known):
        observed.append("its input is at the edge of the domain, where the gradient is infinite")
    elif point is not None and point.stats is not None and point.value == 0:
        stats = point.stats
        observed.append(f"{of_values(stats.zeros, stats.count, ' there')} exactly 0")
    elif point is not None:
        observed.append(f"the derivative is taken at {number(point.value)}")
    inferred = []
    if upstream_grad is not None and upstream_grad.value == 0 and known.singular:
        why = why_no_gradient(upstream_grad)
        inferred.append(f"{why}: 0 times an infinite gradient is NaN" if why else "0 times an infinite gradient is NaN")  # fmt: skip
    return Finding(
        headline=f"{subject(evidence)} because {_no_slope(op, forward, point)}",
        observed=tuple(observed),
        inferred=tuple(inferred),
        label=f"in its gradient {origin_label(op)}",
        culprit=op.inputs.index(point) if point is not None else None,
        fixes=_fixes(known, point),
    )


def _no_slope(op: OpRecord, forward: str, point: Operand | None) -> str:
    """`x ** 0.5` has an infinite slope at 0, `x ** 2` has not: the exponent is what matters."""
    exponent = op.scalar("exponent") if op.name == "pow" else None
    if exponent is not None and point is not None and point.value == 0:
        return f"`x ** {number(exponent + 1)}` has an infinite slope at x = 0"
    return f"`{forward}` has no finite gradient{_where(row(forward), point)}"


def _overflowed(op: OpRecord) -> bool:
    """Finite in float64: the slope exists, its value is only too large for the type."""
    if op.exact is None:
        return not row(op.name).poles and op.value is not None and math.isinf(op.value)
    return math.isfinite(op.exact)


def _at_an_edge(forward: Op) -> bool:
    """Whether it is singular elsewhere than at 0."""
    return any(forward.singular)


def _roles(op: OpRecord) -> tuple[Operand | None, Operand | None]:
    """(the forward value at which the slope is taken, the arriving gradient)."""
    grads = [o for o in op.inputs if o.role.startswith("grad")]
    rest = [o for o in op.inputs if not o.role.startswith("grad") and o.value is not None]
    if op.name in ("div", "mul") and len(op.inputs) == 2:
        return op.inputs[1], op.inputs[0]
    if op.name == "pow":  # of base and exponent, the base is where the slope is taken
        return op.operand("self"), None
    if grads:
        return (rest[0] if rest else None), grads[0]
    return (rest[-1] if rest else None), None


def _where(forward: Op, point: Operand | None) -> str:
    if point is None or point.value is None or not math.isfinite(point.value):
        return " there"
    if _at_an_edge(forward):
        return " at the edge of its domain"
    if forward.singular or forward.name == "norm":
        return " at 0" if point.value == 0 else f" at {called(point, number(point.value))}"
    return " at its operand"


def _may_be_a_norm(point: Operand | None) -> bool:
    """Whether the root is one of a sum or mean of squares, as far as its argument is known."""
    names = [op.name for op in (point.upstream if point is not None else ())]
    before = names[names.index("sqrt") + 1 :] if "sqrt" in names else []
    before = [name for name in before if name not in CHOOSING and name not in BOUNDS][:2]
    squares = before[1:] in ([], ["pow"], ["square"], ["mul"])
    return not before or (before[0] in ("sum", "mean", "add") and squares)


def _exact_forms(forward: Op, point: Operand | None) -> tuple[Fix, ...]:
    """Functions that have no singular point there, such as `log_softmax`."""
    if forward.name != "log" or point is None:
        return ()
    return tuple(fix for fix in log_fixes(point) if fix.kind not in GUARDS)


def _fixes(forward: Op, point: Operand | None) -> tuple[Fix, ...]:
    select = double_where(forward.name)
    if forward.name in ("svd", "eigh"):
        return (Fix(kind="without_vectors", title="equal singular values or eigenvalues have no vectors of their own: use a form that asks for none"),)  # fmt: skip
    if forward.name == "pow":
        return (
            Fix(kind="clamp_argument", title="keep the base above 0, `.clamp(min=1e-6)`"),
            select,
        )
    if forward.name == "sqrt":
        return (*((VECTOR_NORM,) if _may_be_a_norm(point) else ()), EPS_INSIDE, select)
    if _at_an_edge(forward):
        return (Fix(kind="clamp_argument", title="clamp the argument strictly inside the domain, about 1e-6 away from its ends in float32"),)  # fmt: skip
    if forward.singular:
        return (
            *_exact_forms(forward, point),
            select,
            Fix(
                kind="clamp_argument",
                title="keep the operand above 0, `.clamp(min=1e-12)` in float32",
            ),
        )
    return (select,)
