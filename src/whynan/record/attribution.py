"""Whose line a backward operation is: an autograd node belongs to the operation that made it.

These functions count the frames above them: the hot path calls each of them itself.
"""

from __future__ import annotations

import sys
from typing import Any

from whynan.record.local import Local
from whynan.record.records import Origin, Record
from whynan.seam.calls import Calls
from whynan.seam.members import sequence_of
from whynan.seam.paths import CHECKPOINT
from whynan.seam.private import ENGINE, current_node, sequence_number
from whynan.seam.sites import Frames, capture, passes_through

MAX_LEVELS = 8
MAX_NODES = 1024  # of operations that are recorded as one


def claim_nodes(origin: Origin, local: Local, levels: int = MAX_LEVELS) -> None:
    """The autograd nodes made since the last operation are this one's: one for each level
    of differentiation. A node that another operation claimed stays that one's."""
    newest, claimed = sequence_number(), local.claimed
    if newest == claimed + 1:
        local.made.setdefault(claimed, origin)
    else:
        for number in range(max(claimed, newest - levels), newest):
            local.made.setdefault(number, origin)
    local.claimed = newest


def claim_view(calls: Calls, local: Local) -> None:
    """A view is no record, but its node needs a call site."""
    record = Record()
    node = current_node()
    if node is None:
        record.module = calls.running()
        frames = capture(sys._getframe(3))
    else:
        frames = begin_backward(record, node, calls, local)
    claim_nodes(Origin(frames, record.module), local)


def begin_backward(record: Record, node: Any, calls: Calls, local: Local) -> Frames | None:
    """Note the node that is evaluated; returns where what it differentiates was written."""
    frame = sys._getframe(4)
    frames = capture(frame, ENGINE)
    record.node = node.name()
    made = local.made.get(sequence_of(node))
    record.module = made.module if made is not None else None
    if frames is None:
        record.derived = True
        if made is not None:
            record.differentiates = made.index
            return made.frames
        return capture(_below_engine(frame))
    # A user's frame inside the engine: a custom backward, a hook, or a checkpoint's replay.
    if passes_through(frame, CHECKPOINT, ENGINE):
        record.node = None
        record.module = calls.running() or record.module
    return frames


def _below_engine(frame: Any) -> Any:
    while frame is not None and frame.f_code is not ENGINE:
        frame = frame.f_back
    return frame
