"""Divisors that are plain numbers of Python, as in schedules: `max(n, 1)`, not a method of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost
from whynan.repair.project import Project
from whynan.repair.rewrites.corrections import counted
from whynan.repair.source import Expression, Source

TITLE = "divide by at least 1: these settings leave nothing to divide by"
LEAST = 0.1  # of the number that a schedule begins with
WHOLE = ("int", "len", "round", "floor")
NUMBERS = ("int", "float", "float32", "float64")
ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide)


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism == "division_by_zero":
        yield from _failed_here(case)
        yield from _ran_down(case)
    elif case.mechanism == "nonfinite_data" and case.origin.phase == "optimizer":
        yield from _of_a_schedule(case)


def is_plain(case: Case) -> bool:
    """Whether the divisor was no tensor: none was recorded."""
    return case.forward_op == "div" and len(case.origin.inputs) == 1


def _failed_here(case: Case) -> Iterator[Candidate]:
    source, divisor = case.source, _divisor(case)
    if source is None or divisor is None:
        return
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    known = home is not None and _value(constants, home, _again(home, source, divisor)) == 0
    is_count = source.code(divisor).startswith("len(") and is_plain(case)
    is_count |= home is not None and _is_whole(home, _again(home, source, divisor))
    if is_count or known:  # of a fraction, as `1 - decay**step`, 1 would be another number
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


def _ran_down(case: Case) -> Iterator[Candidate]:
    """`START - SLOPE * step`, a schedule that has reached 0: kept at a tenth of where it began."""
    source, node = case.source, case.node
    if source is None or node is None or not is_plain(case):
        return
    constants = Constants(Project(case))
    home = constants.project.source(source.path)
    if home is None:
        return
    quotient = _divisor(case)
    given = [quotient] if quotient is not None else []
    if isinstance(node, cst.Call):
        given += [a.value for a in node.args if a.keyword is not None]
    for argument in given:
        found = _schedule(constants, home, _again(home, source, argument))
        start = _value(constants, found[0], found[1].left) if found is not None else None
        if found is None or start is None or start <= 0 or counted(*found) is not None:
            continue
        place, formula = found
        least = f"{start * LEAST:g}"
        text = f"max({place.code(formula.with_changes(lpar=(), rpar=()))}, {least})"
        title = f"let this schedule end at {least}, before it reaches 0"
        edit = Edit(place).replace(formula, text)
        yield from case.change(edit, "schedule_floor", title, Tier.GUARD)
        return


def _schedule(
    constants: Constants, source: Source, node: Expression, depth: int = 4
) -> tuple[Source, cst.BinaryOperation] | None:
    """The difference behind a name, or behind a call of the user's own function."""
    difference = binary(node, cst.Subtract)
    if difference is not None:
        return source, difference
    if depth == 0:
        return None
    if isinstance(node, cst.Name):
        value = source.value_of(node)
        return _schedule(constants, source, value, depth - 1) if value is not None else None
    try:
        called = (
            constants.project.function(source, node.func) if isinstance(node, cst.Call) else None
        )
    except Lost:
        return None
    if called is None:
        return None
    home, function = called[0].source, called[0].node
    returns = [r for r in home.every(cst.Return, function) if home.scope(r) is function]
    if len(returns) != 1 or returns[0].value is None:
        return None
    return _schedule(constants, home, returns[0].value, depth - 1)


def _divisor(case: Case) -> Expression | None:
    """Of `a / b`, or of `np.divide(a, b)`."""
    quotient, node = binary(case.node, cst.Divide), case.node
    if quotient is not None or not isinstance(node, cst.Call) or len(node.args) < 2:
        return quotient.right if quotient is not None else None
    func = node.func
    name = func.attr.value if isinstance(func, cst.Attribute) else ""
    return node.args[1].value if name in ("divide", "true_divide") else None


def _again(home: Source, source: Source, node: Expression) -> Expression:
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
            if _value(constants, source, quotient.right) == 0:
                edit.replace(quotient.right, _at_least_one(source, quotient.right))
                found += 1
        if found and not edit.is_nested():
            edits.append(edit)
    if edits:
        yield from case.change_all(edits, "divisor_at_least_1", TITLE, Tier.GUARD)


def _at_least_one(source: Source, divisor: Expression) -> str:
    return f"max({source.code(divisor.with_changes(lpar=(), rpar=()))}, 1)"


def _value(constants: Constants, source: Source, node: Expression) -> float | None:
    """Of literals and settings, added, subtracted and multiplied."""
    literal = constants.of(source, node)
    if literal is not None:
        return number_of(literal.node)
    if isinstance(node, cst.Call) and len(node.args) == 1:  # `np.float64(0)`, `int(WARMUP)`
        made = source.code(node.func).split(".")[-1]
        return _value(constants, source, node.args[0].value) if made in NUMBERS else None
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, ARITHMETIC):
        return None
    left, right = (_value(constants, source, part) for part in (node.left, node.right))
    if left is None or right is None:
        return None
    if isinstance(node.operator, cst.FloorDivide):
        return left // right if right else None
    if isinstance(node.operator, cst.Multiply):
        return left * right
    return left + right if isinstance(node.operator, cst.Add) else left - right
