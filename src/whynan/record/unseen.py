"""Evidence of harm whose origin nobody saw: what is known of it, and that the rest is not."""

from __future__ import annotations

from whynan.model import Evidence, OpRecord, Phase, Sink
from whynan.seam.sites import Frames, site_of

PHASE_OF_SINK: dict[str, Phase] = {"gradient": "backward", "parameter": "optimizer"}


def unseen(
    sink: Sink, subject: str, step: int, *, value: float | None, frames: Frames | None, why: str
) -> Evidence:
    origin = OpRecord(
        index=-1,
        op="unseen",
        phase=PHASE_OF_SINK.get(sink, "forward"),
        step=step,
        site=None,
    )
    return Evidence(
        sink=sink,
        subject=subject,
        step=step,
        origin=origin,
        origin_kind="unseen",
        sink_site=site_of(frames) if frames is not None else None,
        sink_value=value,
        incomplete=why,
    )
