"""Whose line a backward operation is: an autograd node belongs to the operation that made it.

These functions count the frames above them: the hot path calls each of them itself.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from whynan.record.local import Local, Nodes
from whynan.record.records import Origin, Record
from whynan.seam.members import sequence_of
from whynan.seam.paths import CHECKPOINT
from whynan.seam.private import ENGINE, current_node, sequence_number
from whynan.seam.sites import Frames, capture, passes_through

if TYPE_CHECKING:
    from whynan.record.tracer import Tracer

MAX_LEVELS = 8
MAX_NODES = 1024  # of operations that are recorded as one
LEAF = 2**63  # the sequence numbers of leaves lie beyond


def caller(depth: int) -> FrameType | None:
    """The frame so far above the one that asks; a device's thread may have none of the program's."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None


def claim_nodes(origin: Origin, nodes: Nodes, levels: int = MAX_LEVELS) -> None:
    """The autograd nodes made since the last operation are this one's: one for each level
    of differentiation. A node that another operation claimed stays that one's."""
    newest, claimed = sequence_number(), nodes.claimed
    if newest == claimed + 1:
        nodes.made.setdefault(claimed, origin)
    else:
        for number in range(max(claimed, newest - levels), newest):
            nodes.made.setdefault(number, origin)
    nodes.claimed = newest


def claim_view(tracer: Tracer, local: Local) -> None:
    """A view is no record, but its node needs a call site."""
    record = Record()
    node = current_node()
    if node is None:
        record.module = tracer.calls.running()
        claim_nodes(Origin(capture(caller(3)), record.module), local.nodes)
    else:
        frames = begin_backward(record, node, tracer, local)
        claim_nodes(Origin(frames, record.module), local.nodes_here())


def begin_backward(record: Record, node: Any, tracer: Tracer, local: Local) -> Frames | None:
    """Note the node that is evaluated; returns where what it differentiates was written."""
    frame = caller(4)
    frames = capture(frame, ENGINE)
    record.node = node.name()
    made = _maker(node, tracer, local)
    record.module = made.module if made is not None else None
    if frames is None:
        record.derived = True
        if made is not None:
            record.differentiates = made.index
            return made.frames
        return capture(_below_engine(frame)) or local.backward_frames
    # A user's frame inside the engine: a custom backward, a hook, or a checkpoint's replay.
    if passes_through(frame, CHECKPOINT, ENGINE):
        record.node = None
        record.module = tracer.calls.running() or record.module
    return frames


def _maker(node: Any, tracer: Tracer, local: Local) -> Origin | None:
    """The operation that made a node. Nodes that were made while gradients were computed on a device
    (`create_graph`, a checkpoint) are numbered by its thread, so that several may have one number."""
    number = sequence_of(node)
    made = local.nodes.made.get(number)
    if not local.elsewhere:
        return made
    others = [o for n in local.elsewhere.values() if (o := n.made.get(number)) is not None]
    if made is None or not others:
        return made or (others[0] if len(others) == 1 else None)
    if any(number < sequence_of(before) < LEAF for before, _ in node.next_functions if before):
        return others[0]  # in one thread, what it is computed from would be older
    kind = node.name().lower()
    fitting = [o for o in (made, *others) if kind.startswith(_name_of(o, tracer))]
    return fitting[0] if len(fitting) == 1 else made


def _name_of(origin: Origin, tracer: Tracer) -> str:
    """As nodes are called: `MaskedFillBackward0`. Of a view nothing is known."""
    record = tracer.records.get(origin.index) if origin.index is not None else None
    return "?" if record is None else f"{record.info.base.replace('_', '')}backward"


def _below_engine(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code is not ENGINE:
        frame = frame.f_back
    return frame
