"""A matrix inverted only to multiply by it.

What it catches
    `inverse(A) @ b` in one expression.

Why it hurts
    Inverting doubles the digits that are lost: for the 8x8 Hilbert matrix the residual is 0.66, where
    `solve` gives 1.2e-7. A nearly singular A gives inf.

Example
    x = torch.inverse(A) @ b

Use instead
    x = torch.linalg.solve(A, b)

When it is fine
    For rotations and camera poses, and when the inverse is used again: nothing is said where it has a
    name of its own.
"""

from __future__ import annotations

import re

from whynan.lint.rewrite import call
from whynan.lint.table import Match, Term, Walker, pattern
from whynan.lint.terms import names_in

RIGID = re.compile(r"pose|extrin|intrin|cam|rot|(^|_)K$|c2w|w2c|trans|warp|homog|proj|view|quat|affine|world|(^|_|\.)[RT]\d?$|mat4|_to_", re.I)  # fmt: skip
COLUMNS = ("unsqueeze", "transpose", "t")


@pattern("N033", "inv-matmul", "info", ops=("matmul", "dot"), fix="sometimes", rank=20)
def inv_matmul(term: Term, here: Walker) -> Match | None:
    if len(term.args) != 2:
        return None
    inverse, b = term.args
    if inverse.op != "inv" or len(inverse.args) != 1 or inverse.kw:
        return None
    if inverse.lib == "" and inverse.form == "method" and inverse.kind != "tensor":
        return None  # x.inverse() of anything: a transform, a permutation
    if any(RIGID.search(n.rsplit(".", 1)[-1]) for n in names_in(term)):
        return None
    if here.function is not None and RIGID.search(here.function.name):
        return None
    array = "numpy" in (inverse.lib, term.lib)
    name = "numpy.linalg.solve" if array else "torch.linalg.solve"
    # A stack of vectors would be taken for a matrix; what is certainly a matrix is safe.
    matrix = (b.op == "attr" and b.value in ("T", "mT")) or b.op in COLUMNS
    return Match(
        term,
        "`inverse(A) @ b` loses twice the digits of `solve`, all of them when A is nearly singular",
        f"{'np' if array else 'torch'}.linalg.solve(A, b)",
        edit=call(term, here, name, inverse.args[0], b) if matrix else None,
    )
