"""Divisions by zero: the function that guards itself, a count of at least 1, or an eps."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.diagnosis.makers import divisor_is
from whynan.ops.table import row
from whynan.repair.calls import binary, call_of, fn, made_by, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import divisor_floor, is_count, spread_floor
from whynan.repair.rewrites.corrections import counted
from whynan.repair.rewrites.cosines import NORMS, cosine, normalized_in_float
from whynan.repair.rewrites.data import nan_aware
from whynan.repair.rewrites.kernels import underflowed_kernel
from whynan.repair.rewrites.normalised import underflowed_shares
from whynan.repair.rewrites.plain import is_plain
from whynan.repair.source import Expression, Source


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in ("division_by_zero", "gradient_singularity"):  # fmt: skip
        return
    if case.mechanism == "gradient_singularity" and not _divides(case.forward_op):
        return
    yield from normalized_in_float(case, source, node)
    divisor = _divisor(source, node)
    if divisor is None or is_plain(case) or underflowed_kernel(case) is not None:
        return
    if counted(source, divisor) is not None:
        return  # the correction of an average of nothing: a floor would make one up
    without = list(left_out_of_mean(case))
    if without:
        yield from without
        return  # a made-up score would change the mean of the others
    quotient = binary(node, cst.Divide)
    if quotient is not None:
        angle = list(_angle(case, source, quotient))
        yield from angle
        if angle:
            return  # a floor would take the sign of a negative divisor
        chosen = list(_chosen(case, source, quotient))
        yield from chosen
        if chosen:
            return  # a floor would make up a huge error
        yield from _normalized(case, source, quotient)
        yield from cosine(case, source, quotient)
    if underflowed_shares(case):
        return  # a floor would give nobody a share
    yield from _counted(case, source, divisor)
    if quotient is not None:
        yield from _smoothed(case, source, quotient)
    yield from _guarded(case, source, divisor)


def left_out_of_mean(case: Case) -> Iterator[Candidate]:
    """A score of a class that occurs nowhere, shown as part of a mean."""
    top = case.origin.inputs[0] if case.origin.inputs else None
    counted = top is not None and top.value == 0 and (is_count(case.culprit) or is_count(top))
    if case.mechanism == "division_by_zero" and not counted:
        return  # a share of something else than what was counted
    if case.anomaly.evidence.sink in ("observed", "output") and case.origin.phase == "forward":
        yield from nan_aware(case, "leave what has no value out of the mean: it occurs nowhere, neither found nor missed")  # fmt: skip


def _angle(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """`torch.atan(dy / dx)`, the direction of a vector."""
    above = source.parent(quotient)
    call = fn(source, source.parent(above)) if isinstance(above, (cst.Arg, cst.Attribute)) else None
    if call is None or call.operand is not quotient or call.inplace:
        return
    name = {"atan": "atan2", "arctan": "arctan2"}.get(call.name)
    if name is None:
        return
    pair = f"{source.code(quotient.left)}, {source.code(quotient.right)}"
    edit = Edit(source).replace(call.node, f"{call.namespace or 'torch'}.{name}({pair})")
    title = f"use `{name}`, which divides nothing: it tells all four quadrants apart, from -pi to pi, and calls the direction of (0, 0) 0"
    yield from case.change(edit, name, title, Tier.GUARD)  # other quadrants get other angles


def _chosen(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """`((p - y).abs() / y.abs()).mean()` that is shown: what is relative to 0 is left out of the mean."""
    above = source.parent(quotient)
    mean = fn(source, source.parent(above)) if isinstance(above, (cst.Arg, cst.Attribute)) else None
    shown = case.anomaly.evidence.sink in ("observed", "output")
    if (
        mean is None
        or mean.operand is not quotient
        or mean.name != "mean"
        or mean.rest
        or not shown
    ):
        return
    same = {o.stats.shape for o in case.origin.inputs if o.stats is not None}
    if len(case.origin.inputs) != 2 or len(same) != 1:
        return
    bottom = quotient.right
    call = fn(source, bottom)
    bare = call.operand if call is not None and call.name == "abs" else bottom
    test = f"{source.code(bare)} != 0"
    edit = Edit(source).replace(
        quotient, f"({source.code(quotient.with_changes(lpar=(), rpar=()))})[{test}]"
    )
    title = f"leave the elements without {source.quoted(bare, 'a divisor')} out of the mean: relative to 0 there is no error"
    yield from case.change(edit, "leave_out_zeros", title, Tier.GUARD)


def _divisor(source: Source, node: Expression) -> Expression | None:
    for operator in (cst.Divide, cst.FloorDivide, cst.Modulo):
        quotient = binary(node, operator)
        if quotient is not None:
            return None if number_of(quotient.right) else quotient.right
    power = binary(node, cst.Power)
    if power is not None:
        return power.left if (number_of(power.right) or 0) < 0 else None
    call = fn(source, node)
    if call is None:
        return None
    if row(call.name).name == "pow":
        return call.operand if (number_of(call.argument(0, "exponent")) or 0) < 0 else None
    known = row(call.name)
    if not _divides(call.name):
        return None
    return call.argument(known.place - 1, known.of) if known.place else call.operand


def _divides(name: str) -> bool:
    """Whether a function divides by its one or its second operand."""
    known = row(name)
    return "division_by_zero" in known.fails and 0 in known.poles


def _normalized(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """x / x.norm(dim, keepdim=True) is F.normalize(x, dim)."""
    norm = call_of(source, quotient.right, *NORMS)
    if norm is None or not source.same(norm.operand, quotient.left):
        return
    shift = 1 if norm.name == "norm" else 0
    order = norm.argument(0, "p", "ord")
    dim = norm.argument(1, "dim") if shift or len(norm.rest) > 1 else norm.argument(9, "dim")
    keep = norm.argument(2, "keepdim")
    if dim is None or keep is None or source.code(keep) != "True":
        return
    if order is not None and order is not dim and number_of(order) != 2:
        return
    text = f"{source.functional()}.normalize({source.code(quotient.left)}, dim={source.code(dim)})"
    title = "use `F.normalize`, which leaves a zero vector at 0"
    edit = Edit(source).replace(quotient, text)
    yield from case.change(edit, "normalize", title, Tier.EXACT)


def _counted(case: Case, source: Source, divisor: Expression) -> Iterator[Candidate]:
    """A number of things is at least 1; the place is where they are counted."""
    title = "count at least 1: where nothing is counted, the divisor is 0"
    less_one = case.culprit is not None and divisor_is(case.culprit) == "number less one"
    if less_one or is_count(case.culprit):
        title = "divide by at least 1: of a single item, one less is 0" if less_one else title
        text = f"{source.receiver(divisor)}.clamp(min=1)"
        yield from case.change(
            Edit(source).replace(divisor, text), "clamp_count", title, Tier.GUARD
        )
        return
    counted = case.upstream_expression("bincount", "histc", "count_nonzero")
    if counted is None:  # a share of a count: the counting is in the same function
        if case.origin.inputs[0].value == 0:
            return  # of nothing: counts of 1 would be made up
        names = [n for n in source.every(cst.Call) if (c := fn(source, n)) and c.name == "bincount"]
        if len(names) == 1 and source.scope(names[0]) is source.scope(divisor):
            edit = Edit(source).replace(names[0], f"{source.code(names[0])}.clamp(min=1)")
            yield from case.change(edit, "clamp_count", title, Tier.GUARD)
        return
    where, node, _ = counted
    edit = Edit(where).replace(node, f"{where.receiver(node)}.clamp(min=1)")
    yield from case.change(edit, "clamp_count", title, Tier.GUARD)


def _smoothed(case: Case, source: Source, quotient: cst.BinaryOperation) -> Iterator[Candidate]:
    """2 * (a * b).sum() / (a.sum() + b.sum()): where there is nothing at all, all of it agrees."""
    parts = [source.value_of(quotient.right) or quotient.right]
    sums = 0
    while parts:
        part = parts.pop()
        if isinstance(part, cst.BinaryOperation) and isinstance(
            part.operator, (cst.Add, cst.Subtract)
        ):
            parts += [part.left, part.right]
        elif made_by(source, part, "sum") is None:
            return
        else:
            sums += 1
    top = quotient.left
    product = binary(top, cst.Multiply)
    if product is not None and number_of(product.left) is not None:
        top = product.right
    overlap = made_by(source, top, "sum")
    values = [o.value for o in case.origin.inputs]
    if sums < 2 or overlap is None or values[:2] != [0, 0]:
        return
    eps = "1e-3" if case.dtype == "float16" else "1e-6"
    edit = Edit(source).replace(quotient.left, f"({source.code(quotient.left)} + {eps})")
    edit.replace(quotient.right, f"({source.code(quotient.right)} + {eps})")
    title = "add the same small number above and below: two empty sets agree fully"
    yield from case.change(edit, "smooth_ratio", title, Tier.GUARD)


def _guarded(case: Case, source: Source, divisor: Expression) -> Iterator[Candidate]:
    stats = case.culprit.stats if case.culprit is not None else None
    eps = divisor_floor(case.dtype)
    if made_by(source, divisor, "std") is not None or case.before[:1] == ("std",):
        eps = spread_floor(case.dtype, stats.max if stats is not None else None)
    if case.culprit is not None and (case.culprit.source or "").startswith("parameter"):
        eps = "1e-2"  # it is learnt: below that its reciprocal drives every other gradient
    root = made_by(source, divisor, "sqrt", *NORMS)
    if case.origin.phase == "optimizer" and root is not None:
        edit = Edit(source).replace(divisor, f"({source.code(divisor)} + {eps})")
        title = f"add {eps} to the divisor, as every torch optimizer does"
        yield from case.change(edit, "add_eps", title, Tier.GUARD)
        return
    # Of a difference nothing was seen but 0: at other times it may have either sign.
    difference = case.culprit is not None and divisor_is(case.culprit) == "difference"
    unsigned = difference and stats is not None and stats.max == 0
    if stats is not None and stats.min is not None and (stats.min < 0 or unsigned):
        code = source.code(divisor)
        if isinstance(divisor, cst.Name):
            text = f"torch.where({code} == 0, {eps}, {code})"
            title = f"replace {_named(source, divisor)} by a small number where it is exactly 0"
            edit = Edit(source).replace(divisor, text)
            yield from case.change(edit, "where_zero", title, Tier.GUARD)
        return
    if _is_spread_of_columns(case) and isinstance(divisor, (cst.Name, cst.Attribute)):
        code = source.code(divisor)
        edit = Edit(source).replace(divisor, f"torch.where({code} > {eps}, {code}, 1.0)")
        title = f"divide a constant column by 1: by {eps}, what differs in it later would be huge"
        yield from case.change(edit, "unit_spread", title, Tier.GUARD)
        return
    if _is_made_up(case):
        return
    text = f"{source.receiver(divisor)}.clamp(min={eps})"
    title = f"keep {_named(source, divisor)} away from 0"
    edit = Edit(source).replace(divisor, text)
    twin = _twin(case, source, divisor)
    if twin is not None:
        edit.replace(twin.right, f"{source.receiver(twin.right)}.clamp(min={eps})")
        title += f", and {source.quoted(twin.right, 'the other')} as well"
    yield from case.change(edit, "clamp_denominator", title, Tier.GUARD)
    yield from _left_undefined(case, source, divisor)


def _is_made_up(case: Case) -> bool:
    """Whether a floor would show a huge number that nothing trains: what is not 0, over nearly 0."""
    top = case.origin.inputs[0].value if case.origin.inputs else None
    shown = case.anomaly.evidence.sink in ("observed", "output")
    return shown and bool(top) and case.origin.phase == "forward"


def _left_undefined(case: Case, source: Source, divisor: Expression) -> Iterator[Candidate]:
    """A share of a spread that is exactly 0, as in 1 - residual / total: there is nothing to explain."""
    quotient = source.parent(divisor)
    sums = [any(op.name in ("sum", "mean") for op in o.upstream[:1]) for o in case.origin.inputs]
    constant = any(c.code == "constant_input" for c in case.anomaly.finding.causes)
    if not constant or len(sums) != 2 or not all(sums):
        return
    if not isinstance(quotient, cst.BinaryOperation) or not isinstance(divisor, cst.Name):
        return
    test = f"{divisor.value} > 0"
    top = source.receiver(quotient.left)
    text = f"torch.where({test}, {top} / torch.where({test}, {divisor.value}, 1.0), 0.0)"
    title = f"let the share count as 0 where `{divisor.value}` is 0: what is constant leaves nothing to explain"
    edit = Edit(source).replace(quotient, text)
    yield from case.change(edit, "leave_out_zeros", title, Tier.GUARD)


def _is_spread_of_columns(case: Case) -> bool:
    """`x.std(0)` of a table: statistics that other rows are scaled with later."""
    made = case.culprit.upstream[:1] if case.culprit is not None else ()
    return any(op.name == "std" and op.scalars.get("dim") in ("[0]", 0) for op in made)


def _twin(case: Case, source: Source, divisor: Expression) -> cst.BinaryOperation | None:
    """`h / w` beside the `w / h` that failed: what was 0 once may be 0 on the other side."""
    quotient, stats = source.parent(divisor), case.origin.inputs[0].stats
    if not isinstance(quotient, cst.BinaryOperation) or stats is None or (stats.min or 0) < 0:
        return None
    scope = source.scope(divisor)
    for other in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        if not isinstance(other.operator, cst.Divide) or other is quotient:
            continue
        if source.same(other.left, divisor) and source.same(other.right, quotient.left):
            return other
    return None


def _named(source: Source, divisor: Expression) -> str:
    said = source.quoted(divisor, "the divisor")
    return f"the divisor {said}" if said.startswith("`") else said
