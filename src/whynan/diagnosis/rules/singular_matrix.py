"""A matrix that cannot be inverted or factored.

What it catches
    `inverse`, `solve`, `cholesky`, `det`, `slogdet`, `lu`, `eigh` or `svd` of a matrix that is
    singular, not positive definite, or ill-conditioned beyond its type.

Why it hurts
    The operation raises, or returns inf or NaN.

Example
    weights = torch.linalg.inv(features.T @ features) @ features.T @ y      # two equal columns

Use instead
    weights = torch.linalg.lstsq(features, y).solution, or add a ridge: `A + 1e-6 * torch.eye(n)`

When it is fine
    When the failure is caught and the matrix is regularised, as Gaussian-process libraries do.
"""

from __future__ import annotations

import re

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import called, origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, dotted, number
from whynan.ops.op import Op
from whynan.ops.table import row

RIDGE = Fix(kind="ridge", title="add a small multiple of the identity: `A + 1e-6 * torch.eye(n)`")
LSTSQ = Fix(kind="solve", title="use `torch.linalg.lstsq` or `pinv`")
INDEPENDENT = Fix(kind="independent", title="or leave out rows and columns that depend on others: the logarithm of a determinant of 0 is -inf")  # fmt: skip


@rule("N033", "singular-matrix", "singular_matrix", ops=(), kinds=("operation", "raised"))
def singular_matrix(op: OpRecord, evidence: Evidence) -> Finding | None:
    asked = _asked(op, evidence)
    if op.derived or asked is None:
        return None
    if asked.name in ("det", "logdet") and op.value not in (None, float("-inf")):
        return None  # a determinant of a singular matrix is 0; an infinite one has overflowed
    x = next((o for o in op.inputs if o.stats is not None and len(o.stats.shape) > 1), None)
    observed = [f"{called(x, 'the matrix')}: {x.stats}"] if x is not None else []
    if x is not None and x.eigenvalues is not None:
        low, high = x.eigenvalues
        observed.append(f"its eigenvalues lie between {number(low)} and {number(high)}")
    shape = dotted(x.stats.shape) if x is not None and x.stats is not None else ""
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` was given a {shape} matrix that {_what_fails(asked, evidence)}",
        observed=tuple(observed),
        label="origin: refused here" if evidence.origin_kind == "raised" else origin_label(op),
        culprit=op.inputs.index(x) if x is not None else None,
        fixes=(RIDGE, *_otherwise(asked)),
    )  # fmt: skip


def _otherwise(asked: Op) -> tuple[Fix, ...]:
    if "det" in asked.name:
        return (INDEPENDENT,)
    return (LSTSQ,) if asked.name in ("inv", "solve", "factored") else ()


def _asked(op: OpRecord, evidence: Evidence) -> Op | None:
    """What was asked of the matrix; of an error that is raised later, its words tell."""
    raised = evidence.origin_kind == "raised"
    words = re.findall(r"\w+", evidence.message or "") if raised else []
    found = (row(name) for name in (op.name, *words))
    return next((known for known in found if "singular_matrix" in known.fails), None)


def _what_fails(asked: Op, evidence: Evidence) -> str:
    """What the operation asks of its matrix, and this one is not."""
    if asked.name == "cholesky":
        return "is not positive definite"
    if "invertible" not in str(asked.domain) and asked.name != "det":
        return "it could not decompose"
    exactly = evidence.origin_kind == "raised" or "det" in asked.name
    return "is singular" if exactly else "is singular or nearly so"
