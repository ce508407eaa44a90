"""Schedules that run down to 0: kept above it where they are written."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from whynan.model import REFUSED, OpRecord
from whynan.ops.table import that
from whynan.repair.calls import binary, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place, returned
from whynan.repair.project import Project
from whynan.repair.rewrites.plain import again, divisor_of, is_plain
from whynan.repair.source import Expression, Source

SINGULAR = ("division_by_zero", "log_nonpositive", "gradient_singularity")
DIVIDED, LOGARITHM = 0.1, 1e-3  # of the number that a schedule begins with: to divide by, for a log
SET = (cst.Name, cst.Attribute, cst.Subscript)
ALMOST = "0.999"  # where a share of noise ends, so that something is left
ENDS = that("ceiling") | {"clamp", "clip", "min", "linspace"}
FROM_NUMBERS = ("lift_fresh", "scalar_tensor", "full", "fill")


def propose(case: Case) -> Iterator[Candidate]:
    constants = Constants(Project(case))
    if case.mechanism not in SINGULAR and case.forward_op != REFUSED:
        return
    for found in _floors(case, constants):
        file = os.path.basename(found.source.path)
        line = found.source.line(found.node)
        title = f"let this schedule end at {found.least}, not at {found.end} ({file}, line {line})"
        edit = Edit(found.source).replace(found.node, found.text)
        yield from case.change(edit, "schedule_floor", title, Tier.GUARD)


@dataclass(frozen=True)
class Bounded:
    """`beta.clamp(0, 1)`, `torch.linspace(1e-4, 1.0, n)`, `min(beta, 1)`."""

    source: Source
    node: cst.Call


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
    yield from _some_signal_left(case, constants)


def _some_signal_left(case: Case, constants: Constants) -> Iterator[Floor]:
    """`torch.cumprod(1 - beta, 0)` of betas that end at 1: what is left of the signal is 0 there."""
    source = constants.project.source(case.site.file) if case.site is not None else None
    zero = case.culprit is not None and case.culprit.value == 0
    if source is None or case.source is None or case.node is None or not zero:
        return
    failed = again(source, case.source, case.node)
    for part in (failed, *source.below(failed)):
        product = _cumulated(constants, source, part) if isinstance(part, SET) else None
        if product is None or not isinstance(product.node, Expression):
            continue
        for call in _bounded(constants, product.source, product.node):
            ends = [a.value for a in call.node.args if number_of(a.value) == 1]
            if len(ends) == 1:
                yield Floor(source=call.source, node=ends[0], text=ALMOST, least=ALMOST, end="1")
                return


def _cumulated(
    constants: Constants, source: Source, node: Expression, depth: int = 6
) -> Place | None:
    """What a cumulated product is taken of, behind names, functions and parameters."""
    call = fn(source, node)
    if call is not None and call.name == "cumprod":
        return Place(source, call.operand)
    found = behind(constants, source, node) or constants.from_caller(source, node)
    if found is None and isinstance(node, cst.Attribute):
        found = constants.value(source, node)
    if depth == 0 or found is None or not isinstance(found.node, Expression):
        return None
    return _cumulated(constants, found.source, found.node, depth - 1)


def _bounded(
    constants: Constants, source: Source, node: Expression, depth: int = 4
) -> Iterator[Bounded]:
    """The calls in it, and behind the names in it, that keep a number between two others."""
    for part in (node, *source.below(node)):
        if isinstance(part, cst.Call) and source.code(part.func).split(".")[-1] in ENDS:
            yield Bounded(source, part)
        value = behind(constants, source, part) if depth and isinstance(part, cst.Name) else None
        if value is not None and isinstance(value.node, Expression):
            yield from _bounded(constants, value.source, value.node, depth - 1)


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
        place = written(case, op)
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


def written(case: Case, op: OpRecord) -> tuple[Source, Expression] | None:
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
        if name in ("astype", "tolist", "item") and isinstance(node.func, cst.Attribute):
            return _floor(constants, source, node.func.value, share, depth - 1)
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply):
            for side in (node.left, node.right):
                if isinstance(side, cst.Call) and (inner := _floor(constants, source, side, share, depth - 1)):  # fmt: skip
                    return inner
        return _kept_above(constants, source, node, share)
    if isinstance(node, cst.ListComp):
        return _floor(constants, source, node.elt, share, depth - 1)
    found = behind(constants, source, node)
    if found is None or not isinstance(found.node, Expression):
        return None
    return _floor(constants, found.source, found.node, share, depth - 1)


def behind(constants: Constants, source: Source, node: Expression) -> Place | None:
    """What a name stands for, the table of an entry, what the user's own function returns."""
    if isinstance(node, cst.Subscript):
        return behind(constants, source, node.value)
    if isinstance(node, cst.Name):
        return constants.value(source, node) or _looped_over(source, node)
    try:
        called = constants.project.function(source, node.func) if isinstance(node, cst.Call) else None  # fmt: skip
        value = returned(called[0]).value if called is not None else None
    except Lost:
        return None
    return Place(called[0].source, value) if called is not None and value is not None else None


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
    """`widths` of `for width in widths` and of `for i, width in enumerate(widths)`."""
    given = source.given(name)
    target = source.original(given.node) if given is not None else None
    loop = source.parent(target) if target is not None else None
    if isinstance(loop, cst.Element):
        pair = source.parent(loop)
        loop = source.parent(pair) if pair is not None else None
        over = loop.iter if isinstance(loop, cst.For) else None
        named = isinstance(over, cst.Call) and source.code(over.func) == "enumerate"
        is_second = isinstance(pair, cst.Tuple) and pair.elements[-1].value is target
        if not isinstance(over, cst.Call) or not (named and is_second and over.args):
            return None
        return Place(source, over.args[0].value)
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
    for part in differences:
        found = constants.of(source, part) if isinstance(part, SET) else None
        if found is not None and isinstance(found.node, cst.Float) and number_of(found.node) == 0:
            return Floor(source=found.source, node=found.node, text=least, least=least)
    text = f"max({source.code(node.with_changes(lpar=(), rpar=()))}, {least})"
    return Floor(source=source, node=node, text=text, least=least)


def _computed(function: Callable[[float], float] | None, x: float) -> float | None:
    try:
        return None if function is None else float(function(x))
    except (TypeError, ValueError, ArithmeticError):
        return None


def _start(constants: Constants, source: Source, node: Expression, depth: int = 3) -> float | None:
    """Its value at step 0: every name that stands for no setting is the step."""
    literal = constants.of(source, node)
    if literal is not None:
        return number_of(literal.node)
    behind = constants.value(source, node) if depth and isinstance(node, cst.Name) else None
    if behind is not None and isinstance(behind.node, Expression):
        return _start(constants, behind.source, behind.node, depth - 1)
    if isinstance(node, SET):
        return math.pi if source.code(node).endswith(".pi") else 0.0
    if isinstance(node, cst.Call) and node.args:
        name = source.code(node.func).split(".")[-1]
        given = [_start(constants, source, a.value, depth) for a in node.args]
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
    left, right = (_start(constants, source, part, depth) for part in (node.left, node.right))
    if isinstance(node.operator, cst.Divide) and left is not None:
        return left / right if right else (0.0 if left == 0 else None)
    if left is None or right is None:
        return None
    if isinstance(node.operator, cst.Multiply):
        return left * right
    if isinstance(node.operator, cst.Add):
        return left + right
    return left - right if isinstance(node.operator, cst.Subtract) else None
