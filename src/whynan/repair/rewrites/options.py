"""Failures inside a function of torch's own that one of its options prevents."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.places import Lost
from whynan.repair.project import Project
from whynan.repair.source import Source

TITLE = "let `ctc_loss` give 0 for targets that no alignment can produce"


def propose(case: Case) -> Iterator[Candidate]:
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


def _with_option(case: Case, source: Source, call: cst.Call) -> Iterator[Candidate]:
    given = [a for a in call.args if a.keyword and a.keyword.value == "zero_infinity"]
    if given:
        edit = Edit(source).replace(given[0].value, "True")
    else:
        text = source.code(call).removesuffix(")").rstrip(", \n")
        comma = "" if text.endswith("(") else ", "
        edit = Edit(source).replace(call, f"{text}{comma}zero_infinity=True)")
    yield from case.change(edit, "zero_infinity", TITLE, Tier.GUARD)
