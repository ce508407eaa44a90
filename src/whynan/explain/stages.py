"""The whole way of the witness, operation by operation: reason, origin, path, sink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from whynan.diagnosis.chain import backward_word, made_from
from whynan.diagnosis.naming import call_of
from whynan.diagnosis.words import sink_word
from whynan.explain.story import shown
from whynan.model import Anomaly, Operand, OpRecord, Site, number

MOST = 200  # a page with more is read by nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One operation and the witness's value after it."""

    role: Literal["reason", "origin", "path", "sink"]
    op: str
    call: str = ""
    value: float | None = None
    dtype: str = "float32"
    note: str = ""
    site: Site | None = None
    module: str | None = None
    tensors: tuple[Operand, ...] = ()
    aside: bool = False  # can be folded away: the story is understood without it

    @property
    def shown(self) -> str:
        return "" if self.value is None else number(self.value)


def stages_of(anomaly: Anomaly) -> list[Stage]:
    """From the reason to the sink; what the short chain leaves out is marked as aside."""
    evidence, finding = anomaly.evidence, anomaly.finding
    found = _reasons(anomaly)
    if evidence.origin_kind != "unseen":
        found.append(_stage(anomaly.origin, "origin", finding.label))
    path = [_stage(op, "path", backward_word(op)) for op in evidence.path[:MOST]]
    found += _fold(path, head=3, tail=1)
    found.append(
        Stage(
            role="sink",
            op=sink_word(evidence),
            value=evidence.sink_value,
            note=evidence.effect or evidence.subject,
            site=evidence.sink_site,
        )
    )
    return found


def _reasons(anomaly: Anomaly) -> list[Stage]:
    culprit = anomaly.finding.culprit
    if culprit is None:
        return []
    operand = anomaly.origin.inputs[culprit]
    if not operand.upstream and operand.source:
        return [Stage(role="reason", op="input", value=operand.value, note=operand.source)]
    makers = [_stage(op, "reason", made_from(op)) for op in reversed(operand.upstream)]
    return _fold(makers, head=1, tail=3)


def _stage(op: OpRecord, role: Literal["reason", "origin", "path"], note: str) -> Stage:
    return Stage(
        role=role,
        op=shown(op.name),
        call=call_of(op),
        value=op.value,
        dtype=op.dtype,
        note=note,
        site=op.site,
        module=op.module,
        tensors=(*op.inputs, *op.outputs),
    )


def _fold(stages: list[Stage], *, head: int, tail: int) -> list[Stage]:
    """The middle is set aside when there is more than one in it."""
    if len(stages) <= head + tail + 1:
        return stages
    middle = [replace(stage, aside=True) for stage in stages[head : len(stages) - tail]]
    return [*stages[:head], *middle, *stages[len(stages) - tail :]]
