"""A batch whose targets are all ignored: its loss is the sum over those that count, over their number."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.training import with_keyword
from whynan.repair.source import Expression, Source

LOSSES = ("cross_entropy", "nll_loss")
MODULES = ("CrossEntropyLoss", "NLLLoss")
UNSAID = "-100"  # the default of `ignore_index`
OTHERWISE = ("reduction", "weight", "label_smoothing")  # then the mean is another one
TITLE = "add up the losses and divide by the number of targets that count, at least 1: a batch without any then teaches nothing"


def propose(case: Case) -> Iterator[Candidate]:
    source, call = case.source, case.node
    if case.mechanism != "empty_reduction" or source is None or not isinstance(call, cst.Call):
        return
    if "nll_loss" not in case.forward_op and "cross_entropy" not in case.forward_op:
        return
    made = call if source.code(call.func).split(".")[-1] in LOSSES else _made(source, call)
    target = next((a.value for a in call.args if a.keyword and a.keyword.value == "target"), None)
    target = target or (call.args[1].value if len(call.args) > 1 else None)
    given = {a.keyword.value: source.code(a.value) for a in made.args if a.keyword} if made else {}
    if made is None or target is None or given.keys() & {*OTHERWISE}:
        return
    edit = with_keyword(source, made, "reduction", '"sum"')
    count = f"({source.receiver(target)} != {given.get('ignore_index', UNSAID)}).sum().clamp(min=1)"
    if made is call:
        text = source.code(call).removesuffix(")").rstrip(", \n")
        edit = Edit(source).replace(call, f'{text}, reduction="sum") / {count}')
    else:
        edit.replace(call, f"{source.code(call)} / {count}")
    yield from case.change(edit, "sum_over_count", TITLE, Tier.GUARD)


def _made(source: Source, call: cst.Call) -> cst.Call | None:
    """`criterion = nn.CrossEntropyLoss(ignore_index=0)`, if it is called here alone."""
    name: Expression = call.func
    calls = [c for c in source.every(cst.Call) if source.same(c.func, name)]
    made = [
        assign.value
        for assign in source.every(cst.Assign)
        if source.same(assign.targets[0].target, name) and isinstance(assign.value, cst.Call)
    ]
    one = made[0] if len(made) == len(calls) == 1 else None
    return one if one is not None and source.code(one.func).split(".")[-1] in MODULES else None
