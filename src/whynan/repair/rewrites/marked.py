"""Targets with NaN marks: what is not known is set aside before the arithmetic, not after it.

A NaN that is multiplied by 0 or left out by `where` afterwards still comes back as a gradient: 0 times
NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from whynan.repair.calls import Fn, binary, fn
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import unused
from whynan.repair.source import Expression, Source

MECHANISMS = ("nan_literal", "nonfinite_data", "zero_times_inf")
TESTS = {"isnan": False, "isfinite": True}  # whether True means that the value is known
NAN_AWARE = {"nanmean": "mean", "nansum": "sum"}
TITLE = "set the missing targets aside before the arithmetic: masked afterwards, 0 times NaN is still a NaN gradient"


@dataclass(frozen=True)
class Mask:
    """`valid = ~torch.isnan(y)`."""

    line: cst.SimpleStatementLine
    name: str
    of: str
    knows: bool  # True where the value is known


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism not in MECHANISMS:
        return
    for source, part in _arithmetic(case):
        for name in _operands(part):
            found = list(_filled(case, source, part, name))
            found = found or list(_filled_where_cut(case, source, name))
            found = found or list(_tested_in_place(case, source, part, name))
            found = found or list(_selected(case, source, part, name))
            if found:
                yield from found
                return


def _arithmetic(case: Case) -> Iterator[tuple[Source, Expression]]:
    """Where the marks meet a prediction: the operations of the chain."""
    for op in case.anomaly.evidence.path:
        if op.site is None or not case.is_own(op.site.file):
            continue
        source = case.source_of(op.site.file)
        node = source.expression_at(op.site) if source is not None else None
        if source is not None and isinstance(node, (cst.BinaryOperation, cst.Call)):
            yield source, node


def _operands(part: Expression) -> Iterator[cst.Name]:
    """The variables that it takes."""
    if isinstance(part, cst.BinaryOperation):
        yield from (p for p in (part.right, part.left) if isinstance(p, cst.Name))
    elif isinstance(part, cst.Call):
        yield from (a.value for a in part.args if isinstance(a.value, cst.Name))


def _test(source: Source, node: Expression | None) -> tuple[str, bool] | None:
    """`y` of `~torch.isnan(y)`, and whether it says what is known."""
    knows = True
    while isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        node, knows = node.expression, not knows
    call = fn(source, node)
    if call is not None and call.name in ("float", "bool", "to", "type"):
        return _test(source, call.operand) if knows else None
    if call is None or call.name not in TESTS or not isinstance(call.operand, cst.Name):
        return None
    return call.operand.value, TESTS[call.name] is knows


def _mask(source: Source, name: cst.Name) -> Mask | None:
    """Of that very value, where the function has one under a name."""
    given = source.given(name)
    for assign in source.every(cst.Assign, _around(source, name)):
        test = _test(source, assign.value)
        target, line = assign.targets[0].target, source.statement(assign)
        if test is None or test[0] != name.value or line is None or len(assign.targets) > 1:
            continue
        if isinstance(target, cst.Name) and source.held(assign, name.value) is given:
            return Mask(line, target.value, name.value, test[1])
    return None


def _around(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    scope = source.scope(node)
    return None if scope is source.module else scope


def _filled(case: Case, source: Source, part: Expression, name: cst.Name) -> Iterator[Candidate]:
    """`y = torch.where(valid, y, 0.0)` after the mask: what is masked later is a number then."""
    mask = _mask(source, name)
    if mask is None or not _is_masked_later(source, mask):
        return
    if any(c.name in NAN_AWARE for c in _calls(source, name)):
        return  # which would count the filled ones
    later = [t for t in _tests_of(source, name) if source.start(t) > source.start(mask.line)]
    if any(source.statement(test) is not mask.line for test in later):
        return  # asked again, which would find none
    boolean = mask.name
    value = _value_of(source, mask)
    if value is not None and _is_number(source, value):
        boolean = f"{mask.name}.bool()"
    pair = f"{name.value}, 0.0" if mask.knows else f"0.0, {name.value}"
    text = f"{name.value} = torch.where({boolean}, {pair})"
    edit = Edit(source).after(mask.line, text)
    yield from case.change(edit, "fill_before", TITLE, Tier.EXACT)


def _filled_where_cut(case: Case, source: Source, name: cst.Name) -> Iterator[Candidate]:
    """`y = series[a:b]` of a `series` whose mask was taken before: filled after that."""
    cut = _given_to(source, name)
    whole = cut.value if isinstance(cut, cst.Subscript) else None
    if not isinstance(whole, cst.Name):
        return
    for assign in source.every(cst.Assign):
        test, line = _test(source, assign.value), source.statement(assign)
        target = assign.targets[0].target
        if test is None or test[0] != whole.value or line is None or len(assign.targets) > 1:
            continue
        if not isinstance(target, cst.Name) or source.scope(assign) is not source.scope(whole):
            continue
        others = [t for t in _tests_of(source, whole) if source.statement(t) is not line]
        if others or any(c.name in NAN_AWARE for c in _calls(source, name)):
            return
        text = f"{whole.value} = torch.nan_to_num({whole.value}, nan=0.0)"
        yield from case.change(Edit(source).after(line, text), "fill_before", TITLE, Tier.EXACT)
        return


def _given_to(source: Source, name: cst.Name) -> Expression | None:
    """The value of a name, also of `y, m = series[a:b], mask[a:b]`."""
    value, part = source.value_of(name), source.part_of(name)
    if value is not None or part is None or not isinstance(part[0], cst.Tuple):
        return value
    values = part[0].elements
    return values[part[1]].value if part[1] < len(values) else None


def _value_of(source: Source, mask: Mask) -> Expression | None:
    assign = mask.line.body[0]
    return assign.value if isinstance(assign, cst.Assign) else None


def _is_number(source: Source, value: Expression) -> bool:
    call = fn(source, value)
    return call is not None and call.name in ("float", "to", "type")


def _is_masked_later(source: Source, mask: Mask) -> bool:
    """Whether the mask multiplies, chooses or selects: only counted, nothing would be left out."""
    for read in source.every(cst.Name, _around(source, mask.line)):
        if read.value != mask.name or not source.reads(read):
            continue
        above = source.parent(read)
        if isinstance(above, cst.Attribute):  # `mask.float()`
            call = source.parent(above)
            if not isinstance(call, cst.Call) or above.attr.value not in ("float", "to"):
                continue
            above = source.parent(call)
        if isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Multiply):
            return True
        chosen = fn(source, source.parent(above)) if isinstance(above, cst.Arg) else None
        if chosen is not None and chosen.name in ("where", "masked_fill"):
            return True
    return False


def _calls(source: Source, node: cst.CSTNode) -> list[Fn]:
    found = (fn(source, call) for call in source.every(cst.Call, _around(source, node)))
    return [f for f in found if f is not None]


def _tests_of(source: Source, name: cst.Name) -> list[cst.Call]:
    return [
        c.node
        for c in _calls(source, name)
        if c.name in TESTS and isinstance(c.operand, cst.Name) and c.operand.value == name.value
    ]


def _tested_in_place(
    case: Case, source: Source, part: Expression, name: cst.Name
) -> Iterator[Candidate]:
    """`torch.where(torch.isnan(y), 0.0, (p - y) ** 2)` without a variable for the mask."""
    line, tests = source.statement(part), _tests_of(source, name)
    inside = [t for t in tests if source.statement(t) is line]
    if line is None or len(inside) != 1 or len(tests) != 1:
        return
    above = source.parent(inside[0])
    inverted = isinstance(above, cst.UnaryOperation)
    test = _test(source, inside[0])
    arg = source.parent(above) if inverted and above is not None else above
    chosen = fn(source, source.parent(arg)) if isinstance(arg, cst.Arg) else None
    if test is None or chosen is None or chosen.name not in ("where", "masked_fill"):
        return
    word = "known" if test[1] else "missing"
    mask = unused(source, word, line)
    pair = f"{name.value}, 0.0" if test[1] else f"0.0, {name.value}"
    edit = Edit(source).replace(inside[0], mask)
    edit.before(
        line,
        f"{mask} = {source.code(inside[0])}",
        f"{name.value} = torch.where({mask}, {pair})",
    )
    yield from case.change(edit, "fill_before", TITLE, Tier.EXACT)


def _selected(case: Case, source: Source, part: Expression, name: cst.Name) -> Iterator[Candidate]:
    """`torch.nanmean((p - y) ** 2)`: the known ones are selected before, and the mean is a plain one."""
    difference, line = binary(part, cst.Subtract), source.statement(part)
    if difference is None or line is None:
        return
    for call in _calls(source, part):
        if call.name not in NAN_AWARE or call.rest or part not in [*source.below(call.node)]:
            continue
        func = call.node.func
        if source.statement(call.node) is not line or not isinstance(func, cst.Attribute):
            continue
        known = unused(source, "known", line)
        edit = Edit(source).before(line, f"{known} = ~torch.isnan({name.value})")
        for side in (difference.left, difference.right):
            edit.replace(side, f"{source.receiver(side)}[{known}]")
        edit.replace(func.attr, NAN_AWARE[call.name])
        title = "select the known targets before the arithmetic: what `nanmean` leaves out afterwards still has a NaN gradient"
        yield from case.change(edit, "select_before", title, Tier.EXACT)
        return
