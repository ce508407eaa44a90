"""The chain a person reads: from the reason, through the origin, to the sink."""

from __future__ import annotations

from whynan.model import Evidence, Finding, Link, OpRecord, number

MAX_LINKS = 8
REASONS = 3
ALWAYS_SHOWN = 2


def chain_of(evidence: Evidence, finding: Finding) -> tuple[Link, ...]:
    """At most about eight links; what is left out is counted."""
    links = _reason(evidence.origin, finding)
    origin = evidence.origin
    links.append(
        Link(
            site=origin.site,
            op=origin.name,
            value=origin.value,
            note=finding.label.removeprefix("origin: ") or "origin",
            role="origin",
        )
    )
    room = MAX_LINKS - len(links) - 1
    links += _path(evidence.path, room)
    links.append(
        Link(
            site=evidence.sink_site,
            op=evidence.sink,
            value=evidence.sink_value,
            note=evidence.effect or evidence.subject,
            role="sink",
        )
    )
    return tuple(links)


def _reason(op: OpRecord, finding: Finding) -> list[Link]:
    """The operand that explains the origin, from its own beginning."""
    if finding.culprit is None:
        return []
    culprit = op.inputs[finding.culprit]
    links = []
    shown = culprit.upstream[:REASONS]
    for maker in reversed(shown):
        values = [number(o.value) for o in maker.inputs if o.value is not None]
        note = f"from {', '.join(values[:3])}" if values else ""
        links.append(
            Link(site=maker.site, op=maker.name, value=maker.value, note=note, role="reason")
        )
    if not culprit.upstream and culprit.source:
        links.append(
            Link(site=None, op="input", value=culprit.value, note=culprit.source, role="reason")
        )
    return links


def _path(path: tuple[OpRecord, ...], room: int) -> list[Link]:
    links = [
        Link(site=op.site, op=op.name, value=op.value, note=_node(op), role="path") for op in path
    ]
    if len(links) <= max(room, ALWAYS_SHOWN):
        return links
    head = max(1, room - 2)
    tail = 1
    left_out = len(links) - head - tail
    gap = Link(site=None, op="...", value=None, note=f"{left_out} more operations", role="path")
    return [*links[:head], gap, *links[len(links) - tail :]]


def _node(op: OpRecord) -> str:
    if op.node is None:
        return ""
    return "backward" if op.derived else "in a backward function"
