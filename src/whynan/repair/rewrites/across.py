"""A probability made in one place whose logarithm is taken in another: hand over the logits.

The model then returns logits; a logarithm becomes `log_softmax` or `logsigmoid`, a cross entropy
the function that takes logits, and whatever else reads the probability computes it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from whynan.repair.calls import Fn, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import CRITERIA, ENTROPIES, Chosen, Flow, Log
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.renames import AGAIN, holder, keys_told_right, told_right
from whynan.repair.rewrites import entropy, logarithms
from whynan.repair.rewrites.entropy import BCE_TITLE, binary_entropy, with_logits
from whynan.repair.rewrites.producers import Producer, formula_around, producer_of, written
from whynan.repair.source import Expression, Source


def propose(case: Case) -> Iterator[Candidate]:
    project = Project(case)
    home = project.source(case.site.file) if case.site is not None else None
    failed = home.expression_at(case.site) if home is not None and case.site is not None else None
    log = fn(home, failed) if home is not None else None
    try:
        producer = producer_of(case, project)
        if producer is None and home is not None and failed is not None:
            is_log = log is not None and log.name == "log"
            producer = written(project, home, log.operand) if log and is_log else formula_around(home, failed)  # fmt: skip
        producer, flow = _followed(producer, project) if producer is not None else (None, None)
    except Lost:
        return
    if producer is None or flow is None or failed is None:
        return
    formula = bool(_logarithms(flow)) and log is not None and log.name == "exp"
    losses = [*flow.entropies, *flow.runs]
    if failed in [place.node for place in losses]:
        yield from _changed(case, producer, flow, "bce_with_logits")
    elif formula or (failed in _logarithms(flow) and (flow.crossed or not _is_seen_at_once(case))):
        if producer.name == "sigmoid":
            yield from _changed(case, producer, flow, "bce_with_logits")
            yield from _changed(case, producer, flow, "logsigmoid")
        else:
            yield from _changed(case, producer, flow, "cross_entropy")
            yield from _changed(case, producer, flow, "log_softmax")


def _is_seen_at_once(case: Case) -> bool:
    """Whether the function that takes the logarithm shows all that is needed."""
    found = (*entropy.propose(case), *logarithms.propose(case))
    return any(candidate.tier is Tier.EXACT for candidate in found)


def _logarithms(flow: Flow) -> list[cst.Call]:
    logs = [*flow.logs, *(log for chosen in flow.chosen for log in chosen.logs)]
    return [log.call.node for log in logs]


def _followed(producer: Producer, project: Project) -> tuple[Producer, Flow]:
    """Functions that other calls give something else are not entered; a probability that is made in the
    same way is handed over as well."""
    closed: frozenset[cst.CSTNode] = frozenset()
    while True:
        flow = Flow(project, producer.name == "sigmoid", closed)
        flow.crossed = (
            len(producer.values) > 1 or producer.removed[0][1] is not producer.values[0].node
        )
        for value in producer.values:
            assert isinstance(value.node, Expression)
            flow.follow(value.source, value.node)
        strangers = flow.strangers()
        twins = [_twin(project, producer, given) for _, given in strangers]
        if not strangers:
            return producer, flow
        if None in twins:
            closed |= {function for function, _ in strangers}
        for twin in filter(None, twins if None not in twins else ()):
            if twin.values[0].node not in [value.node for value in producer.values]:
                producer = producer.joined(twin)


def _twin(project: Project, producer: Producer, given: Place | None) -> Producer | None:
    node = given.node if given is not None else None
    found = written(project, given.source, node) if given and isinstance(node, Expression) else None
    alike = found is not None and (found.name, found.dim) == (producer.name, producer.dim)
    return found if alike and found and found.values[0].node not in [v.node for v in producer.values] else None  # fmt: skip


# ---- what is written --------------------------------------------------------------------------


def _changed(case: Case, producer: Producer, flow: Flow, kind: str) -> Iterator[Candidate]:
    edits: dict[str, Edit] = {}

    def edit(source: Source) -> Edit:
        return edits.setdefault(source.path, Edit(source))

    for source, node, text in producer.removed:
        line = source.statement(node)
        said = source.code(line).split("#")[0].strip() if line is not None else ""
        if line is not None and said == f"{text} = {source.code(node)}":
            edit(source).remove(line)  # `out = self.softmax(out)`
        else:
            edit(source).replace(node, text)
    for place in flow.others:
        assert isinstance(place.node, Expression)
        edit(place.source).replace(place.node, _again(producer, flow, place))
    for place in (*flow.entropies, *flow.criteria.values()):
        call = place.node
        func = call.func if isinstance(call, cst.Call) else call
        name = func.attr if isinstance(func, cst.Attribute) else func
        assert isinstance(name, cst.Name)
        edit(place.source).replace(name, {**ENTROPIES, **CRITERIA}[name.value])
    found = False
    for log in flow.logs:
        old, new, special = _in_log_space(log, producer, kind)
        edit(log.place.source).replace(old, new)
        found |= special
    for chosen in flow.chosen:
        for part, text in _chosen_in_log_space(chosen, producer):
            assert isinstance(part.node, Expression)
            edit(part.source).replace(part.node, text)
    if kind in ("cross_entropy", "bce_with_logits") and _logarithms(flow) and not found:
        return  # then the plainer form is all there is
    if any(e.is_nested() for e in edits.values()):
        return  # the value goes into what it is made of
    title = BCE_TITLE if kind == "bce_with_logits" else TITLES[kind]
    first = producer.removed[0][0]
    ordered = sorted(edits.values(), key=lambda e: e.source is not first)
    for candidate in case.change_all(ordered, kind, title, Tier.EXACT):
        yield _with_true_names(case, candidate, flow, producer)


def _again(producer: Producer, flow: Flow, place: Place) -> str:
    """The probability, computed again; under its old name where that becomes free."""
    held = holder(place)
    if held is not None and held in flow.holders:
        return held.name + AGAIN
    return producer.again(place.source.code(place.node))


def _with_true_names(case: Case, candidate: Candidate, flow: Flow, producer: Producer) -> Candidate:
    """What held or returned a probability, and logits now, is called so."""
    texts = told_right(
        case, candidate.texts, (flow.holders, flow.functions), "logits", producer.again
    )
    texts = keys_told_right(case, texts, flow.keys, "logits")
    logs = [held for chosen in flow.chosen for held in chosen.holders]
    return replace(candidate, texts=told_right(case, texts, (logs, []), "log", producer.again))


TITLES = {
    "cross_entropy": "hand over the logits: `cross_entropy` takes the logarithm before anything is rounded to 0",
    "log_softmax": "hand over the logits, and take the logarithm before the small values are rounded away",
    "logsigmoid": "hand over the logits, and take the logarithm where nothing is rounded to 0",
}


def _in_log_space(log: Log, producer: Producer, kind: str) -> tuple[Expression, str, bool]:
    """What is replaced by what; and whether it is a function made for it."""
    source, node = log.place.source, log.place.node
    assert isinstance(node, Expression)
    logits = source.code(node)
    if producer.name == "sigmoid":
        whole = binary_entropy(source, log.call) if kind == "bce_with_logits" else None
        if whole is not None:
            return whole[0], with_logits(source, logits, whole[2], whole[3]), True
        sign = f"-{source.receiver(node)}" if log.complement else logits
        return log.call.node, f"{source.functional()}.logsigmoid({sign})", False
    dim = producer.dim
    loss = _likelihood(source, log) if kind == "cross_entropy" else None
    if loss is not None and _is_class_axis(producer):
        return loss.node, loss.rebuilt("cross_entropy", logits), True
    text = f"torch.log_softmax({logits}, dim={dim})"
    if log.call.operand is not node:
        text = source.code(log.call.operand.deep_replace(node, cst.parse_expression(text)))
    return log.call.node, text, False


def _chosen_in_log_space(chosen: Chosen, producer: Producer) -> Iterator[tuple[Place, str]]:
    """Chosen from the logarithms: the function `log` goes, another use takes the exponential."""
    dim = producer.dim
    place = chosen.place
    yield place, f"torch.log_softmax({place.source.code(place.node)}, dim={dim})"
    for log in chosen.logs:
        source = log.place.source
        yield Place(source, log.call.node), source.code(log.call.operand)
    for other in chosen.others:
        yield other, f"torch.exp({other.source.code(other.node)})"


def _likelihood(source: Source, log: Log) -> Fn | None:
    """`nll_loss` of the logarithm itself."""
    above = source.parent(log.call.node)
    outer = fn(source, source.parent(above)) if isinstance(above, cst.Arg) else None
    if outer is None or outer.name != "nll_loss" or outer.operand is not log.call.node:
        return None
    return outer if log.call.operand is log.place.node else None


def _is_class_axis(producer: Producer) -> bool:
    """`cross_entropy` takes the softmax over axis 1."""
    return producer.dim == "1" or (producer.dim == "-1" and producer.axes == 2)
