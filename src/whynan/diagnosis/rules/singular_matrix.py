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

from whynan.diagnosis.naming import short_call
from whynan.diagnosis.registry import rule
from whynan.diagnosis.words import called, origin_label, subject
from whynan.model import Evidence, Finding, Fix, OpRecord, dotted

WORDS = (
    "linalg",
    "inverse",
    "cholesky",
    "logdet",
    "slogdet",
    "_det",
    "lu_",
    "geqrf",
    "triangular_solve",
)
FACTORED = ("cholesky_solve", "cholesky_inverse")  # they get the factor
RIDGE = Fix(kind="ridge", title="add a small multiple of the identity: `A + 1e-6 * torch.eye(n)`")
LSTSQ = Fix(kind="solve", title="use `torch.linalg.lstsq` or `pinv`")
OTHERWISE = {
    "inv": LSTSQ,
    "solve": LSTSQ,
    "det": Fix(kind="independent", title="or leave out rows and columns that depend on others: the logarithm of a determinant of 0 is -inf"),
}  # fmt: skip


@rule("N033", "singular-matrix", "singular_matrix", kinds=("operation", "raised"))
def singular_matrix(op: OpRecord, evidence: Evidence) -> Finding | None:
    matrixish = any(word in op.name for word in WORDS) and "norm" not in op.name
    about_matrix = "linalg" in (evidence.message or "") or "cholesky" in (evidence.message or "")
    if "det" in op.name and "slog" not in op.name and op.value not in (None, float("-inf")):
        return None  # a determinant of a singular matrix is 0; an infinite one has overflowed
    if op.derived or not (matrixish or (evidence.origin_kind == "raised" and about_matrix)):
        return None
    x = next((o for o in op.inputs if o.stats is not None and len(o.stats.shape) > 1), None)
    observed = [f"{called(x, 'the matrix')}: {x.stats}"] if x is not None else []
    shape = dotted(x.stats.shape) if x is not None and x.stats is not None else ""
    return Finding(
        headline=f"{subject(evidence)} because `{short_call(op)}` met a {shape} matrix that {_what_fails(op, evidence)}",
        observed=tuple(observed),
        label="origin: refused here" if evidence.origin_kind == "raised" else origin_label(op),
        culprit=op.inputs.index(x) if x is not None else None,
        fixes=(RIDGE, *(fix for word, fix in OTHERWISE.items() if word in op.name)),
    )  # fmt: skip


def _what_fails(op: OpRecord, evidence: Evidence) -> str:
    """What the operation asks of its matrix, and this one is not."""
    told = f"{op.name} {evidence.message or ''}"
    if "cholesky" in told and not any(word in told for word in FACTORED):
        return "is not positive definite"
    if any(word in told for word in ("eig", "svd", "qr")):
        return "it could not decompose"
    exactly = evidence.origin_kind == "raised" or "det" in op.name
    return "is singular" if exactly else "is singular or nearly so"
