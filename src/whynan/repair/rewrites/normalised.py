"""Shares of what has underflowed as a whole: densities over their sum, weights over theirs.

Where every exponential of a row rounds to 0, a floor under the sum gives nobody a share. The logarithms
still differ: their softmax is the same quotient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from whynan.repair.calls import binary, call_of, fn, made_by, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites import moved
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.exponentials import largest_of
from whynan.repair.rewrites.log_space import MECHANISMS, Form
from whynan.repair.source import Expression, Source

KIND = "softmax_of_logs"
TITLE = "take the softmax of the logarithms: they still differ where everything in a row has rounded to 0"
SHIFTED = "subtract the largest exponent first: the division by the sum cancels it, and not everything in a row rounds to 0"


def underflowed_shares(case: Case) -> bool:
    """0 / 0 of exponentials that rounded to 0, above and below."""
    operands = case.origin.inputs[:2]
    if case.mechanism != "division_by_zero" or [o.value for o in operands] != [0, 0]:
        return False
    if any(o.stats is None or o.stats.min is None or o.stats.min < 0 for o in operands[1:]):
        return False
    if all(any(op.name == "exp" and op.value == 0 for op in o.upstream) for o in operands):
        return True
    quotient, codes = binary(case.node, cst.Divide), {c.code for c in case.anomaly.finding.causes}
    own = case.source is not None and quotient is not None and _shares(case, case.source, quotient)
    return bool(own) and "underflow" in codes


def propose(case: Case) -> Iterator[Candidate]:
    source, quotient = case.source, binary(case.node, cst.Divide)
    if source is None or quotient is None or not underflowed_shares(case):
        return
    shares = _shares(case, source, quotient)
    if shares is not None:
        found = [*_in_this_line(case, source, quotient, shares), *_elsewhere(case, source, quotient, shares)]  # fmt: skip
        yield from found[:1]
        if found:
            return
    yield from _shifted(case, source, quotient)


def _shares(case: Case, source: Source, quotient: cst.BinaryOperation) -> tuple[cst.Name, str] | None:  # fmt: skip
    """p and the axis of `p / p.sum(dim, keepdim=True)`; of a vector, all of it."""
    total = call_of(source, quotient.right, "sum")
    top = quotient.left
    if total is None or not isinstance(top, cst.Name) or not source.same(total.operand, top):
        return None
    dim, keeps = total.argument(0, "dim", "axis"), total.argument(1, "keepdim")
    stats = case.origin.inputs[0].stats
    axes = len(stats.shape) if stats is not None else 0
    if axes == 1 and not isinstance(dim, (cst.Tuple, cst.List)):
        return top, "0" if dim is None else source.code(dim)
    return (top, source.code(dim)) if dim is not None and keeps is not None and number_of(dim) is not None else None  # fmt: skip


def _in_this_line(
    case: Case, source: Source, quotient: cst.BinaryOperation, shares: tuple[cst.Name, str]
) -> Iterator[Candidate]:
    """Where the function shows what p is: `p = prior * torch.exp(-d)`."""
    name, dim = shares
    value = source.value_of(name)
    log = fn(source, cst.parse_expression("torch.log(p)"))
    if value is None or log is None:
        return
    form = Form(source, log, keeps=False)
    text, above = form.of(value), source.parent(value)
    if text is None or not form.leaves or not isinstance(above, cst.Assign):
        return
    edit = Edit(source).inline([*form.values, value])
    if source.definition(name) is not None:
        edit.replace(quotient, f"torch.softmax({text}, dim={dim})")
    elif _only_here(source, above, quotient):  # `w = w * torch.exp(ll)`, and only then its share
        log_name = unused(source, f"log_{name.value}", quotient)
        edit.replace(value, text).replace(above.targets[0].target, log_name)
        edit.replace(quotient, f"torch.softmax({log_name}, dim={dim})")
    else:
        return
    yield from case.change(edit, KIND, TITLE, Tier.EXACT)


def _only_here(source: Source, assign: cst.Assign, quotient: cst.CSTNode) -> bool:
    """Whether nothing else reads what is assigned."""
    target, names = assign.targets[0].target, source.names
    line, later = source.statement(assign), source.statement(quotient)
    again = source.parent(quotient)
    body = list(getattr(source.parent(line), "body", ())) if line is not None else []
    next_ = later in body and body.index(later) == body.index(line) + 1
    if next_ and isinstance(again, cst.Assign) and source.same(again.targets[0].target, target):
        return True  # the next line gives it another value
    given = source.binding(target) if isinstance(target, cst.Name) else None
    if given is None:
        return False
    known = ((r, names.given(r)) for r in names.reads(given))
    reads = [(source.original(r), g) for r, g in known if g is not None and given in g.sources]
    inside = [*source.below(quotient)]
    return bool(reads) and all(g is given and node in inside for node, g in reads)


def _elsewhere(
    case: Case, source: Source, quotient: cst.BinaryOperation, shares: tuple[cst.Name, str]
) -> Iterator[Candidate]:
    """Where another function returns p: it returns the logarithm."""
    name, dim = shares
    log = f"{name.value}.log()"
    edit = Edit(source).replace(quotient, f"torch.softmax({log}, dim={dim})")
    for step in case.change(edit, KIND, TITLE, Tier.EXACT):
        there = _as_logarithm(case.with_texts(step.texts))
        again = there.source_of(source.path)
        for call in again.every(cst.Call) if again is not None else ():
            if (
                again is None
                or again.code(call) != log
                or again.line(call) != source.line(quotient)
            ):
                continue
            here = there.at(moved.site_of(again, call))
            for found in (*moved.propose(here), *moved.through(here)):
                yield replace(found, kind=KIND, title=TITLE)


def _as_logarithm(case: Case) -> Case:
    """The same failure, as that of the logarithm which is written first."""
    finding = replace(case.anomaly.finding, mechanism="log_nonpositive", culprit=0)
    assert finding.mechanism in MECHANISMS
    return replace(case, anomaly=replace(case.anomaly, finding=finding))


def _shifted(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """`(w * y).sum(1) / w.sum(1)`, `w @ y / w.sum(1, keepdim=True)`: a weighted mean, where the weight's
    scale cancels."""
    total = call_of(source, quotient.right, "sum")
    weight = total.operand if total is not None else None
    value = source.value_of(weight) if weight is not None else None
    exp = fn(source, value)
    dim = total.argument(0, "dim", "axis") if total is not None else None
    if exp is None or exp.name != "exp" or exp.inplace or not isinstance(weight, cst.Name):
        return
    if not _is_weighted(source, quotient.left, weight.value):
        return
    assign = source.parent(exp.node)
    if not isinstance(assign, cst.Assign) or not _only_here(source, assign, quotient):
        return
    most = largest_of(source.receiver(exp.operand), source.code(dim) if dim is not None else None)
    text = f"{source.code(exp.operand)} - {most}"
    whole = exp.rebuilt("exp", text) if exp.namespace is not None else f"({text}).exp()"
    edit = Edit(source).replace(exp.node, whole)
    yield from case.change(edit, "shift_by_max", SHIFTED, Tier.EXACT)


def _is_weighted(source: Source, top: Expression, weight: str) -> bool:
    """A sum of products with the weight, in which it stands once."""
    names = [n for n in (top, *source.below(top)) if isinstance(n, cst.Name) and n.value == weight]
    product = binary(top, cst.MatrixMultiply)
    total = made_by(source, top, "sum")
    inside = binary(total.operand, cst.Multiply) if total is not None else None
    sides = product or inside
    return sides is not None and len(names) == 1 and names[0] in (sides.left, sides.right)
