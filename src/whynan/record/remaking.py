"""An item that a DataLoader's worker made, made once more in this process, where it is recorded."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from whynan.model import Evidence, OpRecord
from whynan.record.harm import Harm
from whynan.record.mode import TracerMode
from whynan.record.tracer import Tracer
from whynan.seam.hush import same_random
from whynan.seam.members import item_of
from whynan.seam.sites import capture, site_of
from whynan.seam.stats import has_nonfinite
from whynan.seam.tensors import tensors_in

if TYPE_CHECKING:
    from whynan.record.recorder import Recorder

MOST = 64  # items of one batch that are asked for, when it is not known which one is bad


def with_the_dataset(evidence: Evidence, recorder: Recorder) -> Evidence:
    """The same harm from its beginning in the dataset's own code, if that makes it again.

    What happens in a worker is not seen; but a dataset that is asked for the same item does the
    same, unless chance is in it. Then, or when it cannot be asked here, the evidence stands.
    """
    iterator, indices = recorder.batches.behind(evidence.around.fetch)
    if not evidence.is_from_worker or iterator is None or indices is None:
        return evidence
    sample = evidence.around.sample
    known = sample.dataset_index if sample is not None else None
    for index in [known] if known is not None else indices[:MOST]:
        with _undisturbed(), _recorded(recorder.tracer):
            try:
                item = item_of(iterator, index)
            except Exception:  # it wants a worker around it, or has a file open there
                return evidence
        bad = [t for t in tensors_in(item) if t.is_floating_point() and has_nonfinite(t)]
        found = recorder.slicer.evidence(Harm(sink=evidence.sink, subject="item", tensors=bad))
        if found is not None:
            return _joined(found, evidence, index)
    return evidence


def _joined(made: Evidence, evidence: Evidence, index: int) -> Evidence:
    """What the dataset did, then what the program did with it."""
    frames = capture(sys._getframe())
    here = site_of(frames) if frames is not None else None

    def placed(op: OpRecord) -> OpRecord:
        """What torch's own code did with the item, it did for the loader, not where we are."""
        same = (op.site.file, op.site.line) == (here.file, here.line) if op.site and here else False
        is_ours = op.site is None or same
        return replace(op, site=evidence.origin.site) if is_ours else op

    if made.origin_kind == "entry" and placed(made.origin) is not made.origin:
        return evidence  # it lay there like this
    phase = made.origin.phase if made.origin.phase == "init" else "data"
    return replace(
        evidence,
        origin=replace(made.origin, phase=phase, step=evidence.step),
        origin_kind=made.origin_kind,
        path=(*map(placed, made.path), evidence.origin, *evidence.path),
        around=replace(evidence.around, remade=index),
    )


@contextlib.contextmanager
def _recorded(tracer: Tracer) -> Iterator[None]:
    """In the middle of whynan's own work, which is not: some of the program's."""
    local = tracer.quiet.local
    own, local.own = local.own, 0
    try:
        with TracerMode(tracer):
            yield
    finally:
        local.own = own


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """The program notices nothing: no output, no random number used up."""
    numpy: Any = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else None
    unseen = io.StringIO()
    with (
        same_random(),
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        contextlib.redirect_stdout(unseen),
        contextlib.redirect_stderr(unseen),
    ):
        try:
            yield
        finally:
            if numpy is not None:
                numpy.random.set_state(state)
