"""Data that was bad when it came into torch: back to the operation of NumPy that made it so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from whynan.arrays.numpy_errors import Event, Place
from whynan.arrays.reach import Way, way, way_to_site
from whynan.model import Evidence, OpRecord, TensorStats, kind_of


def crossed(evidence: Evidence, events: Sequence[Event], here: tuple[Place, ...]) -> Evidence:
    """The same harm with its origin in NumPy, if that is sure; else with a word about it."""
    entry = evidence.origin
    value = entry.inputs[0] if entry.inputs else None
    if value is not None and (value.source or "").startswith(("parameter", "buffer")):
        return evidence  # a state that was loaded
    stats = value.stats if value is not None else None
    site, unsure = entry.site, evidence
    for event in events:
        found = way(event, here)
        if found is None and site is not None:
            found = way_to_site(event, site)
        if found is None:
            continue
        made = event.evidence.origin
        if found.seen or any(_fits(op, stats) for op in (made, *event.followers)):
            # NumPy knows no steps: the value counts to the one in which it came in.
            made, *on = (replace(op, step=entry.step) for op in (made, *event.followers))
            return replace(
                evidence, origin=made, origin_kind="operation", path=(*on, entry, *evidence.path),
                incomplete=event.evidence.incomplete,
            )  # fmt: skip
        if unsure is evidence:
            unsure = replace(evidence, incomplete=_perhaps(event, found))
    return unsure


def _fits(op: OpRecord, came_in: TensorStats | None) -> bool:
    """What came in holds as many NaN or infinities as the operation made, or is of its shape."""
    made = op.out
    if made is None or came_in is None or op.value is None:
        return False
    field = {"nan": "nan", "inf": "posinf", "-inf": "neginf"}[kind_of(op.value)]
    before, after = getattr(made, field), getattr(came_in, field)
    return bool(0 < before == after or (0 < before <= after and made.shape == came_in.shape))


def _perhaps(event: Event, found: Way) -> str:
    site = event.evidence.origin.site
    name = f", which leads to `{found.name}`" if found.name else ""
    where = f"{os.path.relpath(site.file)}:{site.line}" if site is not None else ""
    return f"whether it is the value of which NumPy said `{event.said}` at {where}{name}"
