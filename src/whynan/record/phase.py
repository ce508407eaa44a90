"""When an operation ran: in the forward pass, the backward pass, an update, or before it all."""

from __future__ import annotations

from collections.abc import Sequence

from whynan.model import Phase
from whynan.ops.table import that
from whynan.record.records import Record, inside_of
from whynan.record.tracer import Tracer
from whynan.seam.sites import site_of
from whynan.source.positions import in_one_loop

CASTS = frozenset(f"Module.{name}" for name in that("casts"))


def phase_of(record: Record, tracer: Tracer, path: Sequence[Record | None] = ()) -> Phase:
    """The operation's phase, in the words of the design; `path` is what came of its result."""
    if record.in_data:
        return "data"
    if inside_of(record) in CASTS:
        return "init"  # a cast of the whole model
    if record.node is not None:
        return "backward"  # also in a closure that the optimizer calls
    if record.in_optimizer or record.reads_grad:
        return "optimizer"
    if record.setup and (tracer.began or tracer.will_train):
        if _in_forward(record):
            return "forward"
        if any(r is not None and not r.setup and _together(record, r) for r in path):
            return "forward"
        return "data" if _reaches_model(path) else "init"
    return "forward"


def is_after_backward(record: Record | None, tracer: Tracer) -> bool:
    """Between the backward pass and the parameter: part of an update written by hand."""
    return (
        record is not None
        and record.node is None
        and record.index >= tracer.local.differentiated_at >= 0
    )


def _reaches_model(path: Sequence[Record | None]) -> bool:
    return any(r.in_data or any(o.entry.model_input for o in r.outs) for r in path if r is not None)


def _in_forward(record: Record) -> bool:
    """A module that replaces `__call__`, as gpytorch's do, runs no hooks: only its own text tells."""
    site = site_of(record.frames) if record.frames else None
    return site is not None and site.function.endswith(".forward")


def _together(first: Record, second: Record) -> bool:
    a, b = (site_of(r.frames) if r.frames else None for r in (first, second))
    return a is not None and b is not None and in_one_loop(a, b)
