"""A clamp on the way whose bound is the very value that a later function cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from whynan.model import OpRecord
from whynan.ops.table import spelled
from whynan.repair.calls import Fn, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import margin
from whynan.repair.source import Source

MECHANISMS = ("log_nonpositive", "division_by_zero", "invalid_domain", "gradient_singularity")
CLAMPS = spelled(lambda op: op.name in ("clamp", "clamp_min", "clamp_max"))
TITLE = "tighten this clamp: on its bound, a later function has no finite value or slope"


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism not in MECHANISMS or case.culprit is None:
        return
    for op in case.culprit.upstream:
        if op.name not in CLAMPS or op.site is None or not case.is_own(op.site.file):
            continue
        source = case.source_of(op.site.file)
        clamp = fn(source, source.expression_at(op.site)) if source is not None else None
        if source is None or clamp is None or clamp.name not in CLAMPS:
            continue
        edit = _tightened(source, clamp, op)
        if edit is not None:
            yield from case.change(edit, "clamp_tighter", TITLE, Tier.GUARD)


def _tightened(source: Source, clamp: Fn, op: OpRecord) -> Edit | None:
    """Both bounds, if the value that led to the failure lies on one of them."""
    low = None if clamp.name == "clamp_max" else clamp.argument(0, "min")
    high = clamp.argument(0 if clamp.name == "clamp_max" else 1, "max")
    gap = margin(op.dtype)
    inner = {0.0: gap, -1.0: f"-1 + {gap}"}, {1.0: f"1 - {gap}"}
    edit, found = Edit(source), False
    for bound, texts in zip((low, high), inner, strict=True):
        number = number_of(bound)
        if bound is not None and number in texts:
            edit.replace(bound, texts[number])
            found |= number == op.value
    return edit if found else None
