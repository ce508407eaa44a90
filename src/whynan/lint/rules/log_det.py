"""Logarithm of a determinant.

What it catches
    `log(det(A))`, also with `abs` between.

Why it hurts
    A determinant is a product of many numbers: that of 0.1 times the identity of size 200 is 1e-200,
    which is 0 in float32. The logarithm is then -inf where the true one is -460.5.

Example
    log_likelihood = -0.5 * torch.log(torch.det(cov))

Use instead
    log_likelihood = -0.5 * torch.logdet(cov)

When it is fine
    For 2x2 and 3x3 matrices of ordinary size.
"""

from __future__ import annotations

from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import resolve, strip


@pattern("N012", "log-det", "info", ops=("log",), fix="sometimes", rank=10)
def log_det(term: Term, here: Walker) -> Match | None:
    if not term.args:
        return None
    inner = strip(term.args[0])
    absolute = inner.op == "abs"
    det = strip(inner.args[0]) if absolute else inner
    if det.op != "det" or not det.args:
        return None
    array = "numpy" in (term.lib, det.lib)
    matrix = det.args[0]
    edit = None
    direct = resolve(term.args[0]) is inner and (not absolute or resolve(inner.args[0]) is det)
    # slogdet drops the sign, which a bare log would have shown as NaN
    if direct and (absolute or not array):
        name = "numpy.linalg.slogdet" if array else "torch.linalg.slogdet" if absolute else "torch.logdet"  # fmt: skip
        edit = call(term, here, name, matrix, shape="{}[1]" if absolute else "{}")
    better = "np.linalg.slogdet(A)[1]" if array else "torch.linalg.slogdet(A)[1]" if absolute else "torch.logdet(A)"  # fmt: skip
    return Match(
        term,
        "`log(det(A))` is -inf or inf for a large A: the determinant of 0.1 * I of size 200 underflows to 0",
        f"{better} adds logarithms instead",
        edit=edit,
    )
