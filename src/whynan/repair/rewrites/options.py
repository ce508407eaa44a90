"""Failures inside a function of torch's own that one of its options prevents."""

from __future__ import annotations

import os
from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.source import Source

ADDS = ("add", "clamp", "clamp_min")
SMALL = 1e-3  # what is given as an eps
TITLE = "let `ctc_loss` give 0 for targets that no alignment can produce"


def propose(case: Case) -> Iterator[Candidate]:
    yield from _zero_infinity(case)
    try:
        yield from _eps(case)
    except Lost:
        return


def _zero_infinity(case: Case) -> Iterator[Candidate]:
    """`zero_infinity` of `F.ctc_loss(...)`, or of the one `nn.CTCLoss(...)` of the program."""
    source, node = case.source, case.node
    if source is None or not isinstance(node, cst.Call) or case.mechanism != "log_nonpositive":
        return
    called = fn(source, node)
    if called is not None and called.name == "ctc_loss":
        yield from _with_option(case, source, node)
    elif "ctc_loss" in case.forward_op:
        try:
            found = [
                (other, call)
                for other in Project(case).mentioning("CTCLoss")
                for call in other.every(cst.Call)
                if other.code(call.func).split(".")[-1] == "CTCLoss"
            ]
        except Lost:
            return
        if len(found) == 1:
            yield from _with_option(case, *found[0])


def _eps(case: Case) -> Iterator[Candidate]:
    """An eps that is given to a function or module of torch and is too small for what it guards."""
    for op in (case.origin, *(case.culprit.upstream if case.culprit is not None else ())):
        amount = op.scalar("eps", "other") if op.name in ADDS or "eps" in op.scalars else None
        if amount is None or not 0 <= amount <= SMALL or op.site is None:
            continue
        project = Project(case)
        source = project.source(op.site.file) if case.is_own(op.site.file) else None
        node = source.expression_at(op.site) if source is not None else None
        if source is None or not isinstance(node, cst.Call):
            continue
        given = list(_given(project, source, node, amount))
        if given:
            yield from _raised(case, given, op.dtype)
            return


def _given(
    project: Project, source: Source, node: cst.Call, amount: float
) -> Iterator[tuple[Source, cst.Call, cst.Arg, Place]]:
    """`eps=0.0` of the call itself; else of the modules that the program makes with that number."""
    constants = Constants(project)
    here = [(source, node)]
    modules = ((s, c) for s in project.mentioning("eps") for c in s.every(cst.Call))
    for home, call in [*here, *(m for m in modules if _makes_a_module(*m))]:
        for arg in call.args:
            if arg.keyword is None or arg.keyword.value != "eps":
                continue
            found = constants.of(home, arg.value)
            if found is not None and number_of(found.node) == amount:
                yield home, call, arg, found


def _makes_a_module(source: Source, call: cst.Call) -> bool:
    """`nn.LayerNorm(8, eps=0)`, of torch's."""
    owner, _, name = source.code(call.func).rpartition(".")
    if owner:
        return owner in ("nn", "torch.nn") and name[:1].isupper()
    return isinstance(call.func, cst.Name) and source.from_torch(call.func) and name[:1].isupper()


def _raised(
    case: Case, given: list[tuple[Source, cst.Call, cst.Arg, Place]], dtype: str
) -> Iterator[Candidate]:
    """The default, where the number stands in the call; in settings, one that the type holds."""
    literal = given[0][3]
    stands = all(arg.value is place.node for _, _, arg, place in given)
    places = {place.source.path for _, _, _, place in given}
    if stands and dtype != "float16" and len(places) == 1:
        edit = Edit(literal.source)
        for source, call, arg, _ in given:
            edit.replace(call, _without(source, call, arg))
        title = f"leave the eps at its default: {source.code(arg.value)} guards nothing"
        yield from case.change(edit, "default_eps", title, Tier.GUARD)
    for larger in ("1e-4", "1e-3") if dtype == "float16" else ("1e-8", "1e-5"):
        edit = Edit(literal.source)
        for _, _, _, place in given:
            if place.source is literal.source and isinstance(place.node, cst.BaseExpression):
                edit.replace(place.node, larger)
        file = os.path.basename(literal.source.path)
        title = f"raise the eps to {larger} where it is set ({file}, line {literal.source.line(literal.node)})"
        yield from case.change(edit, "raise_eps", title, Tier.GUARD)


def _without(source: Source, call: cst.Call, arg: cst.Arg) -> str:
    kept = [a for a in call.args if a is not arg]
    if kept and call.args[-1] is arg:
        kept[-1] = kept[-1].with_changes(
            comma=arg.comma, whitespace_after_arg=arg.whitespace_after_arg
        )
    return source.code(call.with_changes(args=kept))


def _with_option(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    given = [a for a in call.args if a.keyword and a.keyword.value == "zero_infinity"]
    if given:
        edit = Edit(source).replace(given[0].value, "True")
    else:
        text = source.code(call).removesuffix(")").rstrip(", \n")
        comma = "" if text.endswith("(") else ", "
        edit = Edit(source).replace(call, f"{text}{comma}zero_infinity=True)")
    yield from case.change(edit, "zero_infinity", TITLE, Tier.GUARD)
