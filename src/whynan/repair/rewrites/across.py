"""A probability made in one place whose logarithm is taken in another: hand over the logits.

The model then returns logits; a logarithm becomes `log_softmax` or `logsigmoid`, a cross entropy
the function that takes logits, and whatever else reads the probability computes it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from whynan.model import OpRecord
from whynan.repair.calls import Fn, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import CRITERIA, ENTROPIES, Chosen, Flow, Log
from whynan.repair.instances import Instances
from whynan.repair.places import Lost, Place, argument_for, class_of
from whynan.repair.project import Project
from whynan.repair.renames import AGAIN, holder, told_right
from whynan.repair.rewrites import entropy, logarithms
from whynan.repair.rewrites.entropy import BCE_TITLE, binary_entropy, with_logits
from whynan.repair.rewrites.log_space import below_view
from whynan.repair.source import Expression, Source

MODULES = {"_softmax": "Softmax", "sigmoid": "Sigmoid"}


@dataclass(frozen=True)
class Producer:
    """Where the probability is made: an expression, or the last module of a Sequential."""

    name: str  # softmax or sigmoid
    dim: str | None  # as written or recorded
    axes: int | None  # of the logits, where that was recorded
    removed: tuple[Source, Expression, str]  # what is written instead
    values: tuple[Place, ...]  # the expressions that have the probability

    def again(self, logits: str) -> str:
        """The probability itself, where something else needs it."""
        if self.name == "sigmoid":
            return f"torch.sigmoid({logits})"
        return f"torch.softmax({logits}, dim={self.dim})"


def propose(case: Case) -> Iterator[Candidate]:
    project = Project(case)
    home = project.source(case.site.file) if case.site is not None else None
    failed = home.expression_at(case.site) if home is not None and case.site is not None else None
    log = fn(home, failed) if home is not None else None
    try:
        producer = _producer(case, project)
        if producer is None and log is not None and home is not None and log.name == "log":
            producer = _written(project, home, log.operand)
        flow = _followed(producer, project) if producer is not None else None
    except Lost:
        return
    if producer is None or flow is None or failed is None:
        return
    losses = [*flow.entropies, *flow.runs]
    if failed in [place.node for place in losses]:
        yield from _changed(case, producer, flow, "bce_with_logits")
    elif failed in _logarithms(flow) and (flow.crossed or not _is_seen_at_once(case)):
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


# ---- where it is made -------------------------------------------------------------------------


def _producer(case: Case, project: Project) -> Producer | None:
    """The recorded softmax or sigmoid, found in the source."""
    recorded = (op for operand in case.origin.inputs for op in operand.upstream)
    op = next((op for op in recorded if op.name in MODULES), None)
    site = op.site if op is not None else None
    while site is not None and not case.is_own(site.file):
        site = site.caller
    source = project.source(site.file) if site is not None else None
    node = source.expression_at(site) if source is not None and site is not None else None
    if op is None or source is None or not isinstance(node, cst.Call):
        return None
    call = fn(source, node)
    if call is not None and call.name == op.name.strip("_"):
        if call.argument(9, "dtype") is not None or call.inplace:
            return None
        return _recorded(op, (source, node, source.code(call.operand)), (Place(source, node),))
    return _module(op, source, node, project)


def _recorded(op: OpRecord, removed: tuple[Source, Expression, str], values: tuple[Place, ...]) -> Producer:  # fmt: skip
    stats = op.inputs[0].stats if op.inputs else None
    return Producer(
        name=op.name.strip("_"),
        dim=str(op.scalars.get("dim")),
        axes=len(stats.shape) if stats is not None else None,
        removed=removed,
        values=values,
    )


def _written(project: Project, source: Source, node: Expression, depth: int = 8) -> Producer | None:
    """Where the text shows it: through variables, choices of elements and the user's own functions."""
    call = fn(source, node)
    if call is not None and call.name == "softmax" and not call.inplace and len(call.rest) == 1:
        dim = call.argument(0, "dim")
        removed = (source, node, source.code(call.operand))
        text = source.code(dim) if dim is not None else ""
        return Producer("softmax", text, None, removed, (Place(source, node),)) if text else None
    place = behind(project, source, node) if depth else None
    if place is None or not isinstance(place.node, Expression):
        return None
    return _written(project, place.source, place.node, depth - 1)


def behind(project: Project, source: Source, node: Expression) -> Place | None:
    """What an expression has its value from, one step back."""
    part, index = source.part_of(node), None
    inner = below_view(source, node) or source.value_of(node)
    if part is not None:
        inner, index = part
    if isinstance(inner, cst.Tuple) and index is not None:
        return Place(source, inner.elements[index].value) if index < len(inner.elements) else None
    if inner is not None and index is None:
        return Place(source, inner)
    if isinstance(inner or node, cst.Call):
        made = inner or node
        assert isinstance(made, cst.Call)
        found = project.function(source, made.func)
        function = found[0] if found is not None else None
        returns = function.source.every(cst.Return, function.node) if function is not None else []
        value = returns[0].value if len(returns) == 1 else None
        if index is not None and isinstance(value, cst.Tuple) and index < len(value.elements):
            value = value.elements[index].value
        elif index is not None:
            value = None
        return Place(function.source, value) if function is not None and value is not None else None
    return _argument(project, source, node) if isinstance(node, cst.Name) else None


def _argument(project: Project, source: Source, node: cst.Name) -> Place | None:
    """Of a parameter: what the first caller gives; the flow from there looks at the others."""
    function = source.scope(node)
    if not isinstance(function, cst.FunctionDef):
        return None
    home = Place(source, function)
    skipped = int(class_of(source, function) is not None)
    for call in project.calls_of(home)[:1]:
        given = argument_for(call, home, skipped, node.value)
        return Place(call.source, given) if given is not None else None
    return None


def _module(op: OpRecord, source: Source, node: cst.Call, project: Project) -> Producer | None:
    """`self.softmax(x)`, or a Sequential that ends with one."""
    for made in _constructed(MODULES[op.name], project):
        above = made.source.parent(made.node)
        whole = made.source.parent(above) if isinstance(above, cst.Arg) else made.node
        if not isinstance(whole, cst.Call):
            continue
        try:
            runs = Instances(project).of_expression(made.source, whole)
        except Lost:
            continue  # another softmax of the program, in a list or the like
        if node not in [run.node for run in runs]:
            continue
        if isinstance(above, cst.Arg) and _ends_with(made.source, whole, above):
            removed = (made.source, whole, _without_last(made.source, whole))
            return _recorded(op, removed, tuple(runs))
        if whole is made.node and len(node.args) == 1:
            removed = (source, node, source.code(node.args[0].value))
            return _recorded(op, removed, (Place(source, node),))
    return None


def _constructed(name: str, project: Project) -> Iterator[Place]:
    for source in project.mentioning(name):
        for call in source.every(cst.Call):
            if source.code(call.func).split(".")[-1] == name:
                yield Place(source, call)


def _ends_with(source: Source, whole: cst.Call, arg: cst.Arg) -> bool:
    named = source.code(whole.func).split(".")[-1] == "Sequential"
    return named and len(whole.args) > 1 and whole.args[-1] is arg


def _without_last(source: Source, whole: cst.Call) -> str:
    """The comment beside the module before it and the closing parenthesis stay where they were."""
    *kept, before, last = whole.args
    closing = last.whitespace_after_arg
    if isinstance(last.comma, cst.Comma):
        closing = last.comma.whitespace_after
    space = before.comma.whitespace_after if isinstance(before.comma, cst.Comma) else closing
    if isinstance(space, cst.ParenthesizedWhitespace):
        if isinstance(closing, cst.ParenthesizedWhitespace):
            space = closing.with_changes(first_line=space.first_line)
        before = before.with_changes(comma=cst.Comma(whitespace_after=space))
    else:
        before = before.with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return source.code(whole.with_changes(args=[*kept, before]))


def _followed(producer: Producer, project: Project) -> Flow:
    """Functions that other calls give something else are not entered."""
    closed: frozenset[cst.CSTNode] = frozenset()
    while True:
        flow = Flow(project, producer.name == "sigmoid", closed)
        flow.crossed = (
            len(producer.values) > 1 or producer.removed[1] is not producer.values[0].node
        )
        for value in producer.values:
            assert isinstance(value.node, Expression)
            flow.follow(value.source, value.node)
        strangers = flow.strangers()
        if not strangers:
            return flow
        closed |= strangers


# ---- what is written --------------------------------------------------------------------------


def _changed(case: Case, producer: Producer, flow: Flow, kind: str) -> Iterator[Candidate]:
    edits: dict[str, Edit] = {}

    def edit(source: Source) -> Edit:
        return edits.setdefault(source.path, Edit(source))

    source, node, text = producer.removed
    line = source.statement(node)
    if (
        line is not None
        and source.code(line).split("#")[0].strip() == f"{text} = {source.code(node)}"
    ):
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
    ordered = sorted(edits.values(), key=lambda e: e.source is not source)
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
