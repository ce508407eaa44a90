"""A logarithm that is taken in another function than what it is taken of: moved there first.

The function then returns the logarithm, whoever took it takes it as it comes, and whoever reads the value
itself takes its exponential. That alone mends nothing: it lets the rewrites that look at one function see
the whole form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from whynan.model import Site
from whynan.repair.calls import binary, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import Flow, Log
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.renames import AGAIN, holder, keys_told_right, told_right
from whynan.repair.rewrites import across, iterations, log_space, logarithms, products
from whynan.repair.rewrites.producers import MODULES, behind
from whynan.repair.source import Expression, Source

FORMS = (*log_space.TITLES, "log_domain")
FAMILIES = (products, logarithms, iterations, log_space)
# logsigmoid(x) - logsigmoid(-x) is x.
LOGIT = re.compile(r"([\w.]+\.logsigmoid)[(](\w+)[)] - \1[(]-\2[)]")
MOST = 4  # softmaxes of one form
NEAREST = 4  # operations before the logarithm: what is made further away is no part of its form


def propose(case: Case) -> Iterator[Candidate]:
    """What one function shows when the logarithm stands in it."""
    for moved in _moved(case):
        found = [c for family in FAMILIES for c in family.propose(moved) if c.tier is Tier.EXACT]
        found = found or list(through(moved))
        yield from found
        if found:
            return
    yield from _quotient(case)


def through(moved: Case) -> Iterator[Candidate]:
    """A factor that another function returns: the same again for that one."""
    for form in log_space.propose(moved, open_=True):
        there = moved.with_texts(form.texts)
        for source, call in _new_logs(moved, there):
            log = fn(source, call)
            if log is None or not isinstance(log.operand, cst.Call) or fn(source, log.operand):
                continue
            yield from (c for c in propose(there.at(site_of(source, call))) if _logs(there.with_texts(c.texts), c) <= _logs(there, c))  # fmt: skip
            return


def _new_logs(before: Case, after: Case) -> Iterator[tuple[Source, cst.Call]]:
    for path in after.texts:
        source, old = after.source_of(path), before.source_of(path)
        known = [old.code(c) for c in old.every(cst.Call)] if old is not None else []
        for call in source.every(cst.Call) if source is not None else ():
            if source is not None and _is_log(source, call) and source.code(call) not in known:
                yield source, call


def handed_over(case: Case, candidate: Candidate) -> Candidate:
    """A form that still takes the logarithm of a softmax made elsewhere: of its logits instead."""
    if candidate.kind not in FORMS:
        return candidate
    for _ in range(MOST):
        further = _handed_over(case, candidate)
        if further is candidate:
            break
        candidate = further
    return candidate


def _handed_over(case: Case, candidate: Candidate) -> Candidate:
    there = case.with_texts(candidate.texts)
    for source, call in _new_logs(case, there):
        for further in across.propose(there.at(site_of(source, call))):
            return replace(candidate, texts=further.texts)
    return candidate


def _quotient(case: Case) -> Iterator[Candidate]:
    """`p / q` or `log(p / q)` of probabilities made elsewhere, by the difference of their logarithms."""
    source, node = case.source, case.node
    above = source.parent(source.parent(node) or node) if source is not None and node is not None else None  # fmt: skip
    log = fn(source, node) if source is not None else None
    around = fn(source, above) if source is not None and binary(node, cst.Divide) else None
    if around is not None and around.name == "log" and around.operand is node:
        log, node = around, around.node
    quotient = binary(log.operand if log is not None and log.name == "log" else node, cst.Divide)
    if source is None or node is None or quotient is None or not _made_by_softmax(case):
        return
    first = f"{source.receiver(quotient.left)}.log()"
    text = f"{first} - {source.receiver(quotient.right)}.log()"
    edit = Edit(source).replace(node, text if node is not quotient else f"({text}).exp()")
    for spread in case.change(edit, "log_ratio", "", Tier.EXACT):
        there = case.with_texts(spread.texts)
        again = there.source_of(source.path)
        for call in again.every(cst.Call) if again is not None else ():
            if again is None or again.code(call) != first:
                continue
            for found in across.propose(there.at(site_of(again, call))):
                if _logs(case.with_texts(found.texts), found) == _logs(case, found):
                    found = replace(found, texts={p: LOGIT.sub(r"\2", t) for p, t in found.texts.items()})  # fmt: skip
                    title = (
                        "stay with logarithms: the ratio of probabilities that round to 0 is none"
                    )
                    yield replace(found, kind="log_ratio", title=title)


def _logs(case: Case, candidate: Candidate) -> int:
    """How many logarithms the files take."""
    sources = filter(None, map(case.source_of, candidate.texts))
    return sum(_is_log(source, call) and not is_log_of_ratio(source, call) for source in sources for call in source.every(cst.Call))  # fmt: skip


def is_log_of_ratio(source: Source, call: cst.Call) -> bool:
    log = fn(source, call)
    return log is not None and binary(log.operand, cst.Divide) is not None


def _is_log(source: Source, call: cst.Call) -> bool:
    found = fn(source, call)
    return found is not None and found.name == "log" and not found.inplace


def _made_by_softmax(case: Case) -> bool:
    ops = (op for operand in case.origin.inputs for op in operand.upstream)
    return any(op.name in MODULES for op in ops)


def _moved(case: Case) -> Iterator[Case]:
    if case.mechanism != "log_nonpositive" and not case.origin.derived:
        return
    project = Project(case)
    home = project.source(case.site.file) if case.site is not None else None
    failed = home.expression_at(case.site) if home is not None and case.site is not None else None
    if home is None or failed is None:
        return
    for source, made in _makers(case, project, home, failed):
        try:
            flow = Flow(project, elementwise=True)
            flow.follow(source, made)
            known = failed in [log.call.node for log in flow.logs] and flow.crossed
            known &= not any(log.complement for log in flow.logs)  # which would stay as it is
            if known and not (flow.strangers() or flow.entropies or flow.runs or flow.chosen):
                yield from _written(case, source, made, flow)
        except Lost:
            continue


def _makers(
    case: Case, project: Project, home: Source, failed: Expression
) -> Iterator[tuple[Source, Expression]]:
    """What the recording shows before the logarithm; and what a function returns, by its text."""
    for op in (case.culprit.upstream if case.culprit is not None else ())[:NEAREST]:
        source = project.source(op.site.file) if op.site and case.is_own(op.site.file) else None
        made = source.expression_at(op.site) if source is not None and op.site is not None else None
        if source is not None and made is not None:
            yield source, made
    log = fn(home, failed)
    place = Place(home, log.operand) if log is not None else None
    for _ in range(NEAREST):
        try:
            place = behind(project, place.source, place.node) if place is not None and isinstance(place.node, Expression) else None  # fmt: skip
        except Lost:
            return
        if place is not None and isinstance(place.above, cst.Return) and isinstance(place.node, Expression):  # fmt: skip
            yield place.source, place.node


def _written(case: Case, source: Source, made: Expression, flow: Flow) -> Iterator[Case]:
    edits: dict[str, Edit] = {}

    def edit(where: Source) -> Edit:
        return edits.setdefault(where.path, Edit(where))

    text = f"{source.receiver(made)}.log()"
    edit(source).replace(made, text)
    for log in flow.logs:
        edit(log.place.source).replace(log.call.node, _operand(log))
    for place in flow.others:
        assert isinstance(place.node, Expression)
        edit(place.source).replace(place.node, _again(place, flow))
    if any(e.is_nested() for e in edits.values()):
        return
    where = _path(source, made)
    for candidate in case.change_all([*edits.values()], "moved", "", Tier.EXACT):
        texts = told_right(case, candidate.texts, (flow.holders, flow.functions), "log", torch_exp)
        moved = case.with_texts(keys_told_right(case, texts, flow.keys, "log"))
        site = _site_of(moved, source.path, where, text)
        if site is not None:
            yield moved.at(site)


def torch_exp(text: str) -> str:
    return f"torch.exp({text})"


def _operand(log: Log) -> str:
    """What the logarithm was taken of: it comes as a logarithm now."""
    return log.call.source.code(log.call.operand)


def _again(place: Place, flow: Flow) -> str:
    """The value itself; under its old name where that becomes free."""
    held = holder(place)
    if held is not None and held in flow.holders:
        return held.name + AGAIN
    return torch_exp(place.source.code(place.node))


def _path(source: Source, node: cst.CSTNode) -> list[str]:
    kinds = (cst.FunctionDef, cst.ClassDef)
    return [a.name.value for a in source.ancestors(node) if isinstance(a, kinds)]


def _site_of(moved: Case, path: str, where: list[str], text: str) -> Site | None:
    """Where the logarithm stands now."""
    source = moved.source_of(path)
    for call in source.every(cst.Call) if source is not None else ():
        if source is not None and source.code(call) == text and len(_path(source, call)) == len(where):  # fmt: skip
            return site_of(source, call)
    return None


def site_of(source: Source, call: cst.Call) -> Site:
    (line, column), (end_line, end_column) = source.span(call)
    return Site(
        file=source.path,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        function="",
        source=source.code(source.statement(call) or call),
        expression=source.code(call),
    )
