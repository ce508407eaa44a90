"""Schedules that run down to 0, and counts that begin there: mended where they are written."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from whynan.model import OpRecord
from whynan.ops.table import that
from whynan.repair.calls import binary, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.rewrites.plain import NUMBERS, again, divisor_of, is_plain
from whynan.repair.source import Expression, Source

SINGULAR = ("division_by_zero", "log_nonpositive", "gradient_singularity")
DIVIDED, LOGARITHM = 0.1, 1e-3  # of the number that a schedule begins with: to divide by, for a log
REFUSED = "refused"  # by a distribution
ALMOST = "0.999"  # where a share of noise ends, so that something is left
PICKS = that("picks") | {"index", "select"}
FROM_NUMBERS = ("lift_fresh", "scalar_tensor", "full", "fill")
TITLE = "count from 1: number 0 can neither divide nor have a logarithm"


def propose(case: Case) -> Iterator[Candidate]:
    constants = Constants(Project(case))
    yield from _ended(case, constants)
    yield from _counted(case, constants)


def _ended(case: Case, constants: Constants) -> Iterator[Candidate]:
    if case.mechanism not in SINGULAR and case.forward_op != REFUSED:
        return
    for found in _floors(case, constants):
        file = os.path.basename(found.source.path)
        line = found.source.line(found.node)
        title = f"let this schedule end at {found.least}, not at {found.end} ({file}, line {line})"
        edit = Edit(found.source).replace(found.node, found.text)
        yield from case.change(edit, "schedule_floor", title, Tier.GUARD)
    yield from _from_1(case)


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What to write in place of a node, so that a schedule stays above 0."""

    source: Source
    node: Expression
    text: str
    least: str
    end: str = "0"


def _floors(case: Case, constants: Constants) -> Iterator[Floor]:
    share = LOGARITHM if case.mechanism == "log_nonpositive" else DIVIDED
    for source, node, end in _given(case):
        home = constants.project.source(source.path)
        there = again(home, source, node) if home is not None else None
        if home is None or there is None:
            continue
        if isinstance(there, cst.Call) and end is not None:
            found = _at_an_end(constants, home, there, share, end)
        else:
            found = _floor(constants, home, there, share)
        if found is not None:
            yield found
            return


def _given(case: Case) -> Iterator[tuple[Source, Expression, float | None]]:
    """Where the number may come from that is 0."""
    source, node = case.source, case.node
    made = case.culprit.upstream if case.culprit is not None else ()
    if source is not None and node is not None and (is_plain(case) or not made):
        divisor = divisor_of(case)
        yield from [(source, divisor, None)] if divisor is not None else []
        if isinstance(node, cst.Call):
            yield from ((source, a.value, None) for a in node.args if a.keyword is not None)
    if source is not None and case.forward_op == REFUSED and isinstance(node, cst.Call):
        yield from ((source, a.value, None) for a in node.args)
        return
    for op in made:
        place = _written(case, op)
        if place is None:
            continue
        call = place[1]
        if op.name in FROM_NUMBERS and isinstance(call, cst.Call) and call.args:
            full = place[0].code(call.func).split(".")[-1] in ("full", "fill_")
            yield place[0], call.args[-1 if full else 0].value, None
            return
        if op.name == "linspace":
            yield *place, op.value
            return


def _written(case: Case, op: OpRecord) -> tuple[Source, Expression] | None:
    if op.site is None or not case.is_own(op.site.file):
        return None
    source = case.source_of(op.site.file)
    node = source.expression_at(op.site) if source is not None else None
    return (source, node) if source is not None and node is not None else None


def _floor(
    constants: Constants, source: Source, node: Expression, share: float, depth: int = 6
) -> Floor | None:
    if depth == 0:
        return None
    if isinstance(node, cst.Call):
        name = source.code(node.func).split(".")[-1]
        if name in ("linspace", "max", "maximum") and len(node.args) > 1:
            return _at_an_end(constants, source, node, share)
        if name in ("float", "float32", "tensor", "as_tensor") and node.args:
            return _floor(constants, source, node.args[0].value, share, depth - 1)
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply):
            for side in (node.left, node.right):
                if isinstance(side, cst.Call) and (inner := _floor(constants, source, side, share, depth - 1)):  # fmt: skip
                    return inner
        return _kept_above(constants, source, node, share)
    if isinstance(node, cst.ListComp):
        return _floor(constants, source, node.elt, share, depth - 1)
    behind = _behind(constants, source, node)
    if behind is None or not isinstance(behind.node, Expression):
        return None
    return _floor(constants, behind.source, behind.node, share, depth - 1)


def _behind(constants: Constants, source: Source, node: Expression) -> Place | None:
    """What a name stands for, the table of an entry, what the user's own function returns."""
    if isinstance(node, cst.Subscript):
        return _behind(constants, source, node.value)
    if isinstance(node, cst.Name):
        return constants.value(source, node) or _looped_over(source, node)
    try:
        called = constants.project.function(source, node.func) if isinstance(node, cst.Call) else None  # fmt: skip
    except Lost:
        return None
    if called is None:
        return None
    home, function = called[0].source, called[0].node
    returns = [r for r in home.every(cst.Return, function) if home.scope(r) is function]
    if len(returns) != 1 or returns[0].value is None:
        return None
    return Place(home, returns[0].value)


def _called(constants: Constants, source: Source, call: cst.Call) -> Place | None:
    """The user's own function, or the one method of that name."""
    try:
        found = constants.project.function(source, call.func)
        if found is not None or not isinstance(call.func, cst.Attribute):
            return found[0] if found is not None else None
        name = call.func.attr.value
        methods = [
            Place(home, function)
            for home in constants.project.mentioning(name)
            for function in home.every(cst.FunctionDef)
            if function.name.value == name
        ]
    except Lost:
        return None
    return methods[0] if len(methods) == 1 else None


def _looped_over(source: Source, name: cst.Name) -> Place | None:
    """`widths` of `for width in widths`."""
    given = source.given(name)
    target = source.original(given.node) if given is not None else None
    loop = source.parent(target) if target is not None else None
    return Place(source, loop.iter) if isinstance(loop, cst.For) else None


def _at_an_end(
    constants: Constants, source: Source, call: cst.Call, share: float, end: float | None = 0.0
) -> Floor | None:
    """`linspace(2.0, 0.0, n)`, `max(0.0, ...)`: the number that is too small, where it is written."""
    ends = [a.value for a in call.args[:2]]
    for one, other in (ends, ends[::-1]):
        literal, start = constants.of(source, one), _start(constants, source, other)
        value = number_of(literal.node) if literal is not None else None
        if literal is None or not isinstance(literal.node, Expression) or value != end:
            continue
        if value == 0 and start is not None and start > 0:
            least = f"{start * share:g}"
            return Floor(source=literal.source, node=literal.node, text=least, least=least)
        if value == 1 and start is not None and 0 <= start < 1:
            return Floor(source=literal.source, node=literal.node, text=ALMOST, least=ALMOST, end="1")  # fmt: skip
    return None


def _kept_above(
    constants: Constants, source: Source, node: cst.BinaryOperation, share: float
) -> Floor | None:
    """`START - SLOPE * step`, `0.8 * (1 - it / n)`."""
    start = _start(constants, source, node)
    differences = (node, *source.below(node))
    if start is None or start <= 0 or not any(binary(d, cst.Subtract) for d in differences):
        return None
    least = f"{start * share:g}"
    text = f"max({source.code(node.with_changes(lpar=(), rpar=()))}, {least})"
    return Floor(source=source, node=node, text=text, least=least)


def _computed(function: Callable[[float], float] | None, x: float) -> float | None:
    try:
        return None if function is None else float(function(x))
    except (TypeError, ValueError, ArithmeticError):
        return None


def _start(constants: Constants, source: Source, node: Expression) -> float | None:
    """Its value at step 0: every name that stands for no setting is the step."""
    literal = constants.of(source, node)
    if literal is not None:
        return number_of(literal.node)
    if isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
        return math.pi if source.code(node).endswith(".pi") else 0.0
    if isinstance(node, cst.Call) and node.args:
        name = source.code(node.func).split(".")[-1]
        given = [_start(constants, source, a.value) for a in node.args]
        known = [g for g in given if g is not None]
        if name in ("max", "min") and len(known) == len(given):
            return max(known) if name == "max" else min(known)
        if len(known) != 1 or len(given) != 1:
            return None
        return (
            known[0] if name in ("float", "int") else _computed(getattr(math, name, None), known[0])
        )
    if not isinstance(node, cst.BinaryOperation):
        return None
    left, right = (_start(constants, source, part) for part in (node.left, node.right))
    if isinstance(node.operator, cst.Divide) and left is not None:
        return left / right if right else (0.0 if left == 0 else None)
    if left is None or right is None:
        return None
    if isinstance(node.operator, cst.Multiply):
        return left * right
    if isinstance(node.operator, cst.Add):
        return left + right
    return left - right if isinstance(node.operator, cst.Subtract) else None


def _from_1(case: Case) -> Iterator[Candidate]:
    """`torch.arange(n)` under a root, a logarithm or a division."""
    for op in case.culprit.upstream if case.culprit is not None else ():
        if op.name == "arange" and op.value == 0:
            place = _written(case, op)
            call = fn(*place) if place is not None else None
            if place is None or call is None or call.name != "arange":
                return
            plain = [a for a in call.node.args if a.keyword is None]
            if len(plain) == 2 and number_of(plain[0].value) == 0:
                edit = Edit(place[0]).replace(plain[0].value, "1")
                edit.replace(plain[1].value, f"{place[0].code(plain[1].value)} + 1")
            elif len(plain) == 1:
                edit = Edit(place[0]).replace(
                    plain[0].value, f"1, {place[0].code(plain[0].value)} + 1"
                )
            else:
                return
            yield from case.change(edit, "count_from_1", TITLE, Tier.GUARD)
            return
        if len([i for i in op.inputs if i.stats is not None]) > 1 and op.name not in PICKS:
            return  # a distance between two of them is 0 wherever they begin


def _counted(case: Case, constants: Constants) -> Iterator[Candidate]:
    """A counter of plain numbers, in a divisor that was 0: `1 / np.sqrt(layer)`, `step**-0.5`."""
    for source, divisor in _divisors(case, constants):
        parts = (divisor, *source.below(divisor))
        names = [n for n in parts if isinstance(n, cst.Name) and source.reads(n)]
        counters = [n for n in names if _gives(constants, source, n)]
        if len(counters) != 1:
            continue
        counter, name = counters[0], source.code(counters[0])
        if _is_numbered(constants, source, counter):
            edit = Edit(source).replace(counter, f"{name} + 1")
        else:
            edit = Edit(source).replace(counter, f"max({name}, 1)")
        yield from case.change(edit, "count_from_1", TITLE, Tier.GUARD)


def _divisors(case: Case, constants: Constants) -> Iterator[tuple[Source, Expression]]:
    """Of the expression that failed, or of one whose infinite result torch was given as a number."""
    home = constants.project.source(case.site.file) if case.site is not None else None
    plain = is_plain(case) or case.origin.op.startswith("array.")
    plain &= case.mechanism == "division_by_zero"
    if plain and home is not None and case.node is not None and case.source is not None:
        yield from ((home, d) for d in _divided_by(home, again(home, case.source, case.node)))
    for op in case.culprit.upstream if case.culprit is not None else ():
        place = _written(case, op) if op.name in FROM_NUMBERS and op.value == 0 else None
        source = constants.project.source(place[0].path) if place is not None else None
        call = again(source, *place) if source is not None and place is not None else None
        if source is not None and isinstance(call, cst.Call) and call.args:
            yield source, call.args[0].value  # `torch.tensor(2.0 * layer)`
    made = [op for operand in case.origin.inputs for op in operand.upstream]
    for op in (case.origin, *made):
        numbers = [x for x in op.scalars.values() if isinstance(x, float)]
        place = _written(case, op) if not all(map(math.isfinite, numbers)) else None
        source = constants.project.source(place[0].path) if place is not None else None
        if place is None or source is None:
            continue
        for part in source.below(again(source, *place)):
            known = part if isinstance(part, (cst.Name, cst.Call)) else None
            value = _behind(constants, source, known) if known is not None else None
            if value is not None:
                yield from ((value.source, d) for d in _divided_by(value.source, value.node))


def _divided_by(source: Source, node: cst.CSTNode) -> Iterator[Expression]:
    for part in (node, *source.below(node)):
        quotient, power = binary(part, cst.Divide), binary(part, cst.Power)
        if quotient is not None:
            yield quotient.right
        if power is not None and (number_of(power.right) or 0) < 0:
            yield power.left


def _gives(constants: Constants, source: Source, name: cst.Name) -> cst.CSTNode | None:
    """The parameter or the loop that gives a counter its number."""
    if constants.of(source, name) is not None:
        return None
    given = source.given(name)
    target = source.original(given.node) if given is not None else None
    if given is not None and given.how == "is" and (value := source.value_of(name)) is not None:
        cast = isinstance(value, cst.Call) and source.code(value.func).split(".")[-1] in NUMBERS
        inner = value.args[0].value if isinstance(value, cst.Call) and cast and value.args else None
        return _gives(constants, source, inner) if isinstance(inner, cst.Name) else None
    above = source.parent(target) if target is not None else None
    while isinstance(above, (cst.Element, cst.Tuple)):
        above = source.parent(above)
    return above if isinstance(above, (cst.Param, cst.For, cst.CompFor)) else None


def _is_numbered(
    constants: Constants, source: Source, name: Expression | None, depth: int = 4
) -> bool:
    """Whether it numbers things: `for i in range(n)`, `enumerate(layers)`, also in the callers."""
    if not isinstance(name, cst.Name) or depth == 0:
        return False
    above = _gives(constants, source, name)
    if isinstance(above, (cst.For, cst.CompFor)):
        return source.code(above.iter).startswith(("range(", "enumerate("))
    if not isinstance(above, cst.Param):
        return False
    try:
        given = list(constants.given_for(source, above))
    except Lost:
        return False
    return bool(given) and all(
        isinstance(p.node, Expression) and _is_numbered(constants, p.source, p.node, depth - 1)
        for p in given
    )
