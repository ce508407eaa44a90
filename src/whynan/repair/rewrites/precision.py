"""Overflow of a narrow type: the sum that overflows in float32, or bfloat16 for the whole."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import libcst as cst

from whynan.ops.table import that
from whynan.repair.calls import binary, fn, number_of
from whynan.repair.case import HALF, Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.project import Project
from whynan.repair.rewrites.roots import squared
from whynan.repair.rewrites.tables import is_mark
from whynan.repair.source import Expression, Source

HALVES = {
    "torch.float16": "torch.bfloat16", "torch.half": "torch.bfloat16", "float16": "bfloat16",
    '"float16"': '"bfloat16"',
}  # fmt: skip
SCALES = 2.0**11  # a factor like this is a loss scale
SMALL_LOSS = 1e3
LOWER = (10, 7)  # powers of 2: of gradients that are larger than the loss, the second
SATURATED = ("log_nonpositive", "gradient_singularity", "division_by_zero")
LEFT_ALONE = that("casts") | {"backward", "step", "einsum"}  # no operation to widen
PRODUCTS = ("matmul", "bmm", "mm", "mv")
SCALE_FIRST = "scale before the product, not after it: the sum then stays in range"


def propose(case: Case) -> Iterator[Candidate]:
    source, node = case.source, case.node
    in_step = case.origin.phase == "optimizer"
    narrow = "float16" in (case.dtype, *(o.stats.dtype for o in case.origin.inputs if o.stats))
    if case.mechanism == "overflow" and source is not None and node is not None:
        if narrow:
            yield from _lower_scale(case, source, node)
            yield from _scaled_first(case, source, node)
            yield from _wider(case, source, node, "float")
        elif (in_step and case.dtype == "float32") or _is_long_product(case):
            yield from _wider(case, source, node, "double")
    if case.dtype in HALF and not in_step and case.mechanism in SATURATED:
        yield from _squashed_in_float(case)
    if (
        narrow
        and not in_step
        and case.mechanism in ("overflow", "division_by_zero", "inf_minus_inf")
    ):
        for file in case.files():
            if not is_mark(case):
                yield from _in_bfloat16(case, file)


def _lower_scale(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """`loss * 2**17` in float16, which ends at 65504: a smaller scale, where it is set."""
    factor, product = case.origin.scalar("other"), binary(node, cst.Multiply)
    loss = case.origin.inputs[0].stats if case.origin.inputs else None
    ordinary = loss is not None and loss.count == 1 and abs(loss.max or 0) < SMALL_LOSS
    if factor is None or factor < SCALES or product is None or not ordinary:
        return
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    for side in (product.right, product.left):
        again = next((e for e in home.every(type(side)) if home.start(e) == source.start(side)), None) if home else None  # fmt: skip
        found = constants.written(home, again) if home is not None and again is not None else None
        if found is None or not isinstance(found.node, Expression):
            continue
        place = f"{os.path.basename(found.source.path)}, line {found.source.line(found.node)}"
        for power in LOWER:
            text = str(2**power) if number_of(found.node) is not None else f"2**{power}"
            title = f"lower the loss scale to {text} where it is set ({place}): float16 ends at 65504, and {factor:g} times the loss lies beyond"
            edit = Edit(found.source).replace(found.node, text)
            yield from case.change(edit, "lower_scale", title, Tier.EXACT)
        return


def _squashed_in_float(case: Case) -> Iterator[Candidate]:
    """`torch.sigmoid(x.float())`: half precision rounds it to 1 long before float32 does."""
    codes = {cause.code for cause in case.anomaly.finding.causes}
    found = case.upstream_expression("sigmoid", "_softmax", "tanh")
    if found is None or not codes & {"saturation", "underflow", "low_precision"}:
        return
    source, node, _ = found
    call = fn(source, node)
    if call is None or call.inplace or call.argument(9, "dtype") is not None:
        return
    edit = Edit(source).replace(call.operand, f"{source.receiver(call.operand)}.float()")
    title = f"compute {source.quoted(node, 'the probability')} in float32: {case.dtype} rounds it to 0 or 1"
    yield from case.change(edit, "cast_float32", title, Tier.EXACT)


def _is_long_product(case: Case) -> bool:
    """Many ordinary factors, whose product float64 can hold; a diverging run is another matter."""
    op, factors = case.origin, case.culprit
    if op.name not in ("prod", "cumprod") or case.dtype != "float32" or case.anomaly.finding.causes:
        return False
    stats = factors.stats if factors is not None else None
    ordinary = stats is not None and max(abs(stats.max or 0), abs(stats.min or 0)) < 1e6
    return ordinary and op.exact is not None and math.isfinite(op.exact)


def _scaled_first(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """scores = q @ k.T, then scores / scale: dividing q first stays in range."""
    yield from _scaled_inside(case, source, node)
    above = source.parent(node)
    if not isinstance(above, cst.Assign):
        return
    name = source.code(above.targets[0].target)
    for scaled in source.every(cst.BinaryOperation, source.scope(node)):
        line = source.statement(scaled)
        sign = {cst.Divide: "/", cst.Multiply: "*"}.get(type(scaled.operator))
        known = sign is not None and source.code(scaled.left) == name
        if not known or line is None or source.start(scaled) < source.start(node):
            continue
        text = _of_scaled(source, node, f"{sign} {source.receiver(scaled.right)}")
        if text is None or not _is_there(source, scaled.right, node):
            return
        edit = Edit(source).replace(node, text)
        whole = source.parent(scaled)
        if isinstance(whole, cst.Assign) and source.code(whole.targets[0].target) == name:
            edit.remove(line)
        else:
            edit.replace(scaled, name)
        yield from case.change(edit, "scale_first", SCALE_FIRST, Tier.EXACT)
        return


def _is_there(source: Source, scale: Expression, node: Expression) -> bool:
    """Whether all that it names has its value by the time of the product."""
    names = [n for n in source.every(cst.Name, scale) if source.reads(n)]
    given = [t for n in names for t in source.bindings(n.value, source.scope(node))]
    return all(source.start(target) < source.start(node) for target in given)


def _scaled_inside(case: Case, source: Source, node: Expression) -> Iterator[Candidate]:
    """`q @ k.T / scale`, `scale * torch.matmul(q, k.T)` in one expression."""
    scaled = source.parent(node)
    if not isinstance(scaled, cst.BinaryOperation):
        return
    is_first = scaled.left is node
    if isinstance(scaled.operator, cst.Divide) and is_first:
        sign = "/"
    elif isinstance(scaled.operator, cst.Multiply):
        sign = "*"
    else:
        return
    factor = source.receiver(scaled.right if is_first else scaled.left)
    text = _of_scaled(source, node, f"{sign} {factor}")
    if text is not None:
        edit = Edit(source).replace(scaled, text)
        yield from case.change(edit, "scale_first", SCALE_FIRST, Tier.EXACT)


def _of_scaled(source: Source, node: Expression, scale: str) -> str | None:
    """The product with its first factor scaled."""
    product, call = binary(node, cst.MatrixMultiply), fn(source, node)
    if product is not None:
        return f"({source.receiver(product.left)} {scale}) @ {source.code(product.right)}"
    if call is None or call.inplace:
        return None
    if call.name == "einsum" and call.namespace is not None and call.rest:
        first = call.rest[0].value
        scaled = cst.parse_expression(f"{source.receiver(first)} {scale}")
        return source.code(call.node.deep_replace(first, scaled))
    if call.name not in PRODUCTS:
        return None
    first_text = f"{source.receiver(call.operand)} {scale}"
    return call.rebuilt(call.name, first_text if call.namespace is not None else f"({first_text})")


def _wider(case: Case, source: Source, node: Expression, cast: str) -> Iterator[Candidate]:
    """The operation on a wider copy of its operand."""
    call, power = fn(source, node), binary(node, cst.Power)
    if call is not None and call.name not in LEFT_ALONE:
        start = _first_of_chain(source, call.operand)
    elif power is not None:
        start = _first_of_chain(source, power.left)
    else:
        return
    title = f"compute this part in {'float32' if cast == 'float' else 'float64'}"
    kind = "cast_float32" if cast == "float" else "cast_float64"
    wide = f"{source.receiver(start)}.{cast}()"
    yield from case.change(Edit(source).replace(start, wide), kind, title, Tier.EXACT)
    back = _result(source, node)
    if back is not None:
        edit = Edit(source).replace(start, wide)
        edit.replace(back, f"({source.code(back)}).to({source.receiver(start)}.dtype)")
        title += " and give the result back in the type of the input"
        yield from case.change(edit, kind, title, Tier.EXACT)


def _result(source: Source, node: Expression) -> Expression | None:
    """What the function returns, if that is made of the variable the node was given to."""
    line = source.statement(node)
    above = line.body[0] if line is not None else None
    if not isinstance(above, cst.Assign) or not isinstance(above.targets[0].target, cst.Name):
        return None
    uses = source.other_uses(above.targets[0].target.value, node)
    for use in uses:
        returns = [a for a in source.ancestors(use) if isinstance(a, cst.Return)]
        if returns and returns[0].value is not None and not isinstance(returns[0].value, cst.Tuple):
            return returns[0].value
    return None


def _first_of_chain(source: Source, node: Expression) -> Expression:
    """`f` of `f.abs().sum()` and of `(f * f).sum()`: the whole chain then runs in the wider type."""
    while True:
        call = fn(source, node)
        is_method = call is not None and call.namespace is None
        inner = call.operand if call is not None and is_method else squared(source, node)
        if inner is None:
            return node
        node = inner


def _in_bfloat16(case: Case, source: Source) -> Iterator[Candidate]:
    """Every float16 of the file becomes bfloat16, which has float32's range."""
    edit, found = Edit(source), 0
    for node in source.every(cst.Attribute):
        if source.code(node) in HALVES:
            edit.replace(node, HALVES[source.code(node)])
            found += 1
    for call in source.every(cst.Call):
        func = call.func
        if isinstance(func, cst.Attribute) and func.attr.value == "half" and not call.args:
            edit.replace(func.attr, "bfloat16")
            found += 1
    if found:
        title = "use bfloat16, which has the range of float32"
        yield from case.change(edit, "bfloat16", title, Tier.GUARD)
