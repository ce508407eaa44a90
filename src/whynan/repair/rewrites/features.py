"""Finite data that no model can take: a column that was never scaled, a sample far outside."""

from __future__ import annotations

import math
from collections.abc import Iterator

import libcst as cst

from whynan.diagnosis.roots import UNSCALED
from whynan.model import Oddity
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.entries import entries, given_alike
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.data import batches, kept_rows
from whynan.repair.source import Source

STRAINED = ("overflow", "inf_minus_inf", "zero_times_inf", "sqrt_negative", "log_nonpositive")


def propose(case: Case) -> Iterator[Candidate]:
    odd = case.anomaly.evidence.around.oddity
    bad = any(c.code == "bad_data" for c in case.anomaly.finding.causes)
    unscaled = odd is not None and odd.what == "unscaled" and bad
    if unscaled or (case.mechanism in STRAINED and _is_large(case)):
        yield from _standardised(case)
    if odd is not None and odd.what == "outlier" and bad:
        for source in case.files():
            yield from _left_out(case, source, odd)


def _is_large(case: Case) -> bool:
    size = case.anomaly.evidence.around.input_size
    return size is not None and size > UNSCALED and case.origin.phase not in ("data", "init")


def _standardised(case: Case) -> Iterator[Candidate]:
    """Where the table is complete; if the source shows none, from outside, to know if it helps."""
    found = False
    for source in case.files():
        for name, line, after in entries(source):
            for candidate in _standardised_at(case, source, name, line, after):
                found = True
                yield candidate
    if not found and not case.texts:
        title = "standardise the inputs: each feature minus its mean, over its spread"
        yield Candidate(
            kind="standardise",
            title=title,
            tier=Tier.TRAINING,
            texts={},
            intervention="standardise",
        )


def _standardised_at(
    case: Case, source: Source, name: str, line: cst.CSTNode, after: bool
) -> Iterator[Candidate]:
    mean, std = unused(source, "mean", line), unused(source, "std", line)
    statements = (
        # in float64: the square of an unscaled value may not fit into float32
        f"{mean}, {std} = {name}.double().mean(dim=0), {name}.double().std(dim=0)",
        *(
            f"{table} = (({table} - {mean}) / {std}.clamp(min=1e-6)).to({table}.dtype)"
            for table in (name, *([] if after else given_alike(source, name, line)))
        ),
    )
    edit = Edit(source)
    edit = edit.after(line, *statements) if after else edit.before(line, *statements)
    title = "standardise the columns where the data comes in"
    yield from case.change(edit, "standardise", title, Tier.TRAINING)


def _left_out(case: Case, source: Source, odd: Oddity) -> Iterator[Candidate]:
    """`for x, y in loader:` without the samples that are as far outside as this one."""
    limit = between(odd)
    for first, names in batches(source):
        keep = unused(source, "usual", first)
        condition = f"({names[0]}.abs() < {limit}).flatten(1).all(dim=1)"
        edit = Edit(source).before(first, *kept_rows(keep, condition, names))
        title = f"leave out the samples with a value beyond {limit}"
        yield from case.change(edit, "drop_outliers", title, Tier.TRAINING)


def between(odd: Oddity) -> str:
    """A power of ten halfway, in magnitude, between what is typical and the outlier."""
    low, high = max(odd.typical, 1e-3), abs(odd.value)
    return f"1e{round((math.log10(low) + math.log10(high)) / 2)}"
