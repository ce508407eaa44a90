"""Divisors that are plain numbers of Python, as in schedules: `max(n, 1)`, not a method of tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, given_by
from whynan.repair.project import Project
from whynan.repair.source import Expression, Source

TITLE = "divide by at least 1: these settings leave nothing to divide by"
COUNTED = re.compile("warm|step|epoch|iter|count|num|total|len")
WHOLE = ("int", "len", "round", "floor")
NUMBERS = ("int", "float", "float32", "float64")
DIVIDES = ("divide", "true_divide", "mod", "remainder", "fmod")
ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide)


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism == "division_by_zero":
        yield from _failed_here(case)
    elif case.mechanism == "nonfinite_data" and case.origin.phase == "optimizer":
        yield from _of_a_schedule(case)
        yield from _no_history(case)
        yield from _past_the_end(case)
    elif case.mechanism == "empty_reduction" and case.origin.op.startswith("array."):
        yield from _no_history(case)


def is_plain(case: Case) -> bool:
    """Whether the divisor was no tensor: none was recorded."""
    return case.forward_op == "div" and len(case.origin.inputs) == 1


def _failed_here(case: Case) -> Iterator[Candidate]:
    source, divisor = case.source, divisor_of(case)
    if source is None or divisor is None:
        return
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    known = home is not None and value_of(constants, home, again(home, source, divisor)) == 0
    literal = constants.of(home, again(home, source, divisor)) if home is not None else None
    counts = COUNTED.search(source.code(divisor).lower())
    if literal is not None and known and isinstance(literal.node, cst.Float) and not counts:
        file, line = os.path.basename(literal.source.path), literal.source.line(literal.node)
        title = f"nothing can be scaled by 0: leave it as it is, by 1, where that is set ({file}, line {line})"
        edit = Edit(literal.source).replace(literal.node, "1.0")
        yield from case.change(edit, "scale_of_1", title, Tier.GUARD)
    counted = source.code(divisor).startswith("len(") and is_plain(case)
    counted |= home is not None and _is_whole(home, again(home, source, divisor))
    if counted or known:  # of a fraction, as `1 - decay**step`, 1 would be another number
        edit = Edit(source).replace(divisor, _at_least_one(source, divisor))
        yield from case.change(edit, "divisor_at_least_1", TITLE, Tier.GUARD)


def _is_whole(source: Source, divisor: Expression) -> bool:
    """`self.length`, which is somewhere given `int(...)` or `a // b`: a number of things."""
    name = source.code(divisor)
    values = [
        assign.value
        for assign in source.every(cst.Assign)
        if source.code(assign.targets[0].target) == name
    ]
    made = [v.func for v in values if isinstance(v, cst.Call)]
    rounded = any(source.code(func).split(".")[-1] in WHOLE for func in made)
    return rounded or any(binary(v, cst.FloorDivide) is not None for v in values)


def divisor_of(case: Case) -> Expression | None:
    """Of `a / b`, or of `np.divide(a, b)`."""
    quotient, node = binary(case.node, cst.Divide), case.node
    if quotient is not None or not isinstance(node, cst.Call) or len(node.args) < 2:
        return quotient.right if quotient is not None else None
    func = node.func
    name = func.attr.value if isinstance(func, cst.Attribute) else ""
    return node.args[1].value if name in DIVIDES else None


def again(home: Source, source: Source, node: Expression) -> Expression:
    """The same place in another reading of the file."""
    found = (e for e in home.every(type(node)) if home.start(e) == source.start(node))
    return next((e for e in found if home.code(e) == source.code(node)), node)


def _of_a_schedule(case: Case) -> Iterator[Candidate]:
    """The learning rate itself was not finite: whatever in the program divides by a setting of 0."""
    project = Project(case)
    constants, edits = Constants(project), []
    try:
        sources = list(project.everything())
    except Lost:
        return
    for source in sources:
        edit, found = Edit(source), 0
        for quotient in source.every(cst.BinaryOperation):
            if not isinstance(quotient.operator, (cst.Divide, cst.Modulo)):
                continue
            if value_of(constants, source, quotient.right) == 0:
                edit.replace(quotient.right, _at_least_one(source, quotient.right))
                found += 1
        if found and not edit.is_nested():
            edits.append(edit)
    if edits:
        yield from case.change_all(edits, "divisor_at_least_1", TITLE, Tier.GUARD)


def _past_the_end(case: Case) -> Iterator[Candidate]:
    """`(1 - step / total) ** 0.9`: below 0 it has no such power."""
    try:
        sources = list(Project(case).everything())
    except Lost:
        return
    for source in sources:
        for part in source.every(cst.BinaryOperation):
            base = part.left if binary(part, cst.Power) is not None else None
            power = number_of(part.right)
            if binary(base, cst.Subtract) is None or base is None or not power or power % 1 == 0:
                continue
            bare, numpy = source.code(base.with_changes(lpar=(), rpar=())), source.imported("numpy")
            text = f"max({bare}, 0.0)"
            if f"{source.torch_name()}." in bare:
                text = f"({bare}).clamp(min=0)"
            elif numpy is not None:
                text = f"{numpy}.maximum({bare}, 0)"
            title = f"let this schedule end at 0: below, {power:g} is no power of it"
            edit = Edit(source).replace(base, text)
            yield from case.change(edit, "np_maximum", title, Tier.GUARD)


def _no_history(case: Case) -> Iterator[Candidate]:
    """`np.mean(self.losses[-5:])` of a list that begins empty: before there is one, it has no say."""
    try:
        sources = list(Project(case).everything())
    except Lost:
        return
    for source in sources:
        numpy = source.imported("numpy")
        for call in source.every(cst.Call):
            name = source.code(call.func)
            of = call.args[0].value if len(call.args) == 1 else None
            kept = of.value if isinstance(of, cst.Subscript) else of
            if name not in (f"{numpy}.mean", f"{numpy}.median") or not _begins_empty(source, kept):
                continue
            assert kept is not None
            added = binary(source.parent(call), cst.Add) is not None
            text = f"{source.code(call)} if {source.code(kept)} else {0.0 if added else 1.0}"
            title = "leave this mean out as long as there is nothing to take it of"
            edit = Edit(source).replace(call, text)
            yield from case.change(edit, "no_history", title, Tier.GUARD)


def _begins_empty(source: Source, node: cst.CSTNode | None) -> bool:
    """`self.losses = []`, also as one of several, and `self.losses.append(...)` somewhere."""
    if not isinstance(node, (cst.Name, cst.Attribute)):
        return False
    name, assigns = source.code(node), source.every(cst.Assign)
    given = [source.code(v) for a in assigns for t, v in given_by(a) if source.code(t) == name]
    return "[]" in given or "list()" in given


def _at_least_one(source: Source, divisor: Expression) -> str:
    return f"max({source.code(divisor.with_changes(lpar=(), rpar=()))}, 1)"


def value_of(
    constants: Constants, source: Source, node: Expression, depth: int = 4
) -> float | None:
    """Of literals and settings, added, subtracted and multiplied."""
    literal = constants.of(source, node)
    if literal is not None:
        return number_of(literal.node)
    if depth and isinstance(node, cst.Name):
        behind = constants.value(source, node)
        if behind is not None and isinstance(behind.node, Expression):
            return value_of(constants, behind.source, behind.node, depth - 1)
    if isinstance(node, cst.Call) and len(node.args) == 1:  # `np.float64(0)`, `int(WARMUP)`
        made = source.code(node.func).split(".")[-1]
        return value_of(constants, source, node.args[0].value, depth) if made in NUMBERS else None
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, ARITHMETIC):
        return None
    left, right = (value_of(constants, source, part, depth) for part in (node.left, node.right))
    if isinstance(node.operator, cst.Multiply) and 0 in (left, right):
        return 0.0
    if left is None or right is None:
        return None
    if isinstance(node.operator, cst.FloorDivide):
        return left // right if right else None
    if isinstance(node.operator, cst.Multiply):
        return left * right
    return left + right if isinstance(node.operator, cst.Add) else left - right
