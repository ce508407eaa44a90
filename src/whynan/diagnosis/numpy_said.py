"""What NumPy's own words prove of an operation whose operands are gone."""

from __future__ import annotations

import re

from whynan.diagnosis.words import origin_label, subject
from whynan.model import Evidence, Finding, OpRecord

# NumPy's words, the mechanism, and what it did.
MEANINGS = tuple(
    (re.compile(pattern), mechanism, did)
    for pattern, mechanism, did in (
        (r"divide by zero encountered in (scalar )?log", "log_nonpositive", "took the logarithm of 0"),
        (r"invalid value encountered in (scalar )?log", "log_nonpositive", "took the logarithm of a negative number"),
        (r"divide by zero", "division_by_zero", "divided by 0"),
        (r"invalid value encountered in (scalar )?(true_)?divide", "division_by_zero", "divided 0 by 0"),
        (r"invalid value encountered in (scalar )?sqrt", "sqrt_negative", "took the root of a negative number"),
        (r"invalid value encountered in (scalar )?(arc\w+|power)", "invalid_domain", "was given what it is not defined for"),
        (r"overflow", "overflow", "became larger than its type can hold"),
        (r"Mean of empty slice|Degrees of freedom", "empty_reduction", "averaged too few values"),
    )
)  # fmt: skip


def finding_by_words(op: OpRecord, evidence: Evidence) -> Finding | None:
    """With its mechanism, as far as the words tell one; else None."""
    said = op.scalars.get("said")
    if op.op != "numpy.unseen" or not isinstance(said, str) or op.site is None:
        return None
    for pattern, mechanism, did in MEANINGS:
        if pattern.match(said):
            what = op.site.expression or op.site.source
            both = did == "divided 0 by 0"
            return Finding(
                headline=f"{subject(evidence)} because NumPy's `{what}` {did}",
                mechanism=mechanism,
                observed=(f"NumPy said `{said}` here",),
                inferred=("0 divided by 0: the other way, inf by inf, is rare",) if both else (),
                label=origin_label(op),
            )
    return None
