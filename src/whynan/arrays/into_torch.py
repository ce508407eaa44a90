"""Data or a number that was bad when it came into torch: back to what NumPy did to make it so."""

from __future__ import annotations

import dis
import math
import re
from collections.abc import Sequence
from dataclasses import replace

from whynan.arrays.numpy_errors import Event, Place
from whynan.arrays.reach import Way, way, way_to_site
from whynan.model import Evidence, OpRecord, Site, TensorStats, kind_of
from whynan.source.quotes import short_path

CLEANS = re.compile(r"nan|finite|isinf|notna|isna|fillna|dropna|where|mask")


def crossed(evidence: Evidence, events: Sequence[Event], here: tuple[Place, ...]) -> Evidence:
    """The same harm with its origin in NumPy, if that is sure; else with a word about it."""
    entry = evidence.origin
    is_number = evidence.origin_kind == "number"
    value = entry.inputs[0] if entry.inputs and not is_number else None
    if value is not None and (value.source or "").startswith(("parameter", "buffer")):
        return evidence  # a state that was loaded
    stats = value.stats if value is not None else None
    numbers = _numbers(evidence) if is_number else frozenset()
    site, unsure, likely = entry.site, evidence, list[Event]()
    for event in events:
        found = way(event.places, here)
        for place in (site, site.caller) if site is not None else ():
            if found is None and place is not None:
                found = way_to_site(event, place)
        if found is None:
            continue
        made = event.evidence.origin
        makers = (made, *event.followers)
        is_argument = site is not None and _is_within(made.site, site)
        fits = any(_fits(op, stats) or _is_one_of(op, numbers) for op in makers)
        if found.seen or is_argument or fits:
            return _joined(evidence, event)
        if stats is not None and any(_may_be(op, stats) for op in makers):
            likely.append(event)
        if unsure is evidence:
            unsure = replace(evidence, incomplete=_perhaps(event, found))
    if len(likely) == 1 and not _is_cleaned(likely[0]):
        return _joined(evidence, likely[0])  # nothing else of that kind leads there
    return unsure


def _joined(evidence: Evidence, event: Event) -> Evidence:
    entry = evidence.origin
    # NumPy knows no steps: the value counts to the one in which it came in.
    made, *on = (replace(op, step=entry.step) for op in (event.evidence.origin, *event.followers))
    return replace(
        evidence, origin=made, origin_kind="operation", path=(*on, entry, *evidence.path),
        incomplete=event.evidence.incomplete,
    )  # fmt: skip


def _may_be(op: OpRecord, came_in: TensorStats) -> bool:
    """Of the kind that came in, and no more of them."""
    made = op.out
    if made is None or op.value is None or math.isfinite(op.value):
        return False
    field = {"nan": "nan", "inf": "posinf", "-inf": "neginf"}[kind_of(op.value)]
    return bool(0 < getattr(made, field) <= getattr(came_in, field))


def _is_cleaned(event: Event) -> bool:
    """Whether the program looks for such values near where this one was made, or chooses by comparing:
    it may be gone."""
    made_in = event.places[0].code.co_filename
    near = [place.code for place in event.places if place.code.co_filename == made_in]
    chooses = any(i.opname == "COMPARE_OP" for code in near for i in dis.get_instructions(code))
    return chooses or any(CLEANS.search(name) for code in near for name in code.co_names)


def _numbers(evidence: Evidence) -> frozenset[str]:
    """`nan`, `inf`, `-inf`: what came in; an update is given the learning rate with either sign."""
    given = [*evidence.origin.scalars.values()]
    if evidence.origin.phase == "optimizer":
        given += evidence.hyper.values()
    return frozenset(kind_of(n) for n in given if isinstance(n, float) and not math.isfinite(n))


def _is_one_of(op: OpRecord, numbers: frozenset[str]) -> bool:
    """A single number of that kind."""
    single = op.out is not None and op.out.count == 1
    return single and op.value is not None and kind_of(op.value) in numbers


def _fits(op: OpRecord, came_in: TensorStats | None) -> bool:
    """What came in holds as many NaN or infinities as the operation made, or is of its shape."""
    made = op.out
    if made is None or came_in is None or op.value is None:
        return False
    field = {"nan": "nan", "inf": "posinf", "-inf": "neginf"}[kind_of(op.value)]
    before, after = getattr(made, field), getattr(came_in, field)
    return bool(0 < before == after or (0 < before <= after and made.shape == came_in.shape))


def _is_within(inner: Site | None, outer: Site) -> bool:
    """Whether it stands in the arguments of the very call that the value came in by."""
    if inner is None or inner.file != outer.file or inner == outer:
        return False
    if None in (inner.column, inner.end_column, outer.column, outer.end_column):
        return False
    begins = (outer.line, outer.column or 0) <= (inner.line, inner.column or 0)
    ends = (inner.end_line, inner.end_column or 0) <= (outer.end_line, outer.end_column or 0)
    return begins and ends


def _perhaps(event: Event, found: Way) -> str:
    site = event.evidence.origin.site
    name = f", which leads to `{found.name}`" if found.name else ""
    where = f"{short_path(site.file)}:{site.line}" if site is not None else ""
    if not event.said:  # of a library that says nothing
        return f"whether it is the value that was made at {where}{name}"
    return f"whether it is the value of which NumPy said `{event.said}` at {where}{name}"
