"""The chain a person reads: from the reason, through the origin, to the sink."""

from __future__ import annotations

import math

from whynan.diagnosis.makers import COUNTING
from whynan.diagnosis.words import plural, sink_word
from whynan.model import Evidence, Finding, Link, OpRecord, number

MAX_LINKS = 9
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
            note=finding.label or "origin",
            role="origin",
        )
    )
    room = MAX_LINKS - len(links) - 1
    links += _path(evidence.path, room)
    links.append(
        Link(
            site=evidence.sink_site,
            op=sink_word(evidence),
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
    shown = list(culprit.upstream[:REASONS])
    beyond = culprit.upstream[REASONS:]
    if beyond:  # the beginning of the story, and how much lies between
        links.append(_reason_link(beyond[-1]))
    if len(beyond) > 1:
        links.append(_gap(len(beyond) - 1))
    for maker in reversed(shown):
        links.append(_reason_link(maker))
    if not culprit.upstream and culprit.source:
        links.append(
            Link(site=None, op="input", value=culprit.value, note=culprit.source, role="reason")
        )
    return links


def _reason_link(maker: OpRecord) -> Link:
    return Link(
        site=maker.site, op=maker.name, value=maker.value, note=made_from(maker), role="reason"
    )


def made_from(maker: OpRecord) -> str:
    """The values that an operation had at the witness: `from 2.5, 0`."""
    if maker.untouched:
        word = {"bincount": "counted", "scatter": "written"}.get(maker.name, "added")
        if maker.name == "index_put" and not maker.scalars.get("accumulate"):
            word = "written"
        note = f"nothing was {word} here"
    elif maker.name in COUNTING and maker.value == 0:
        note = "an empty bin" if maker.name != "count_nonzero" else "all are 0"
    else:
        values = [number(o.value) for o in maker.inputs if o.value is not None]
        note = f"from {', '.join(values[:3])}" if values else ""
    return f"{note}, backward".removeprefix(", ") if maker.derived else note


def _path(path: tuple[OpRecord, ...], room: int) -> list[Link]:
    links = [
        Link(site=op.site, op=op.name, value=op.value, note=backward_word(op), role="path")
        for op in path
    ]
    if len(links) <= max(room, ALWAYS_SHOWN):
        return links
    head, tail = max(1, room - 2), len(links) - 1
    turn = next((i for i, link in enumerate(links) if link.value is not None and math.isnan(link.value)), 0)  # fmt: skip
    if not head <= turn < tail:
        return [*links[:head], _gap(tail - head), *links[tail:]]
    head = max(1, head - 1)  # that an infinity becomes NaN is what the reader looks for
    before = [_gap(turn - head)] if turn > head else []
    after = [_gap(tail - turn - 1)] if tail > turn + 1 else []
    return [*links[:head], *before, links[turn], *after, *links[tail:]]


def _gap(left_out: int) -> Link:
    note = plural(left_out, "more operation")
    return Link(site=None, op="...", value=None, note=note, role="path")


def backward_word(op: OpRecord) -> str:
    """Whether an operation belongs to a backward pass, in words."""
    if op.node is None:
        return ""
    return "backward" if op.derived else "in a backward function"
