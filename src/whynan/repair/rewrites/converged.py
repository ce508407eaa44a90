"""A solver that goes on when it has arrived: 0 over 0, where it should have stopped."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from whynan.repair.calls import binary
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.rewrites.amounts import unused
from whynan.repair.source import Expression, Source

LOOPS = (cst.For, cst.While)
TRAINS = (".backward(", ".zero_grad(", "autograd.grad(")
ENOUGH = "1e-12"  # of the first residual, which is a square: a millionth of its size
TITLE = "stop when the iteration has arrived: what is left to correct is 0, and nothing can be divided by it"


def propose(case: Case) -> Iterator[Candidate]:
    source, quotient = case.source, binary(case.node, cst.Divide)
    if case.mechanism != "division_by_zero" or source is None or quotient is None:
        return
    values = [o.value for o in case.origin.inputs]
    one = all(o.stats is not None and o.stats.count == 1 for o in case.origin.inputs)
    line = source.statement(quotient)
    loop = _loop(source, quotient)
    if values != [0, 0] or not one or line is None or loop is None:
        return
    edit = Edit(source)
    if _is_carried(source, quotient.left, loop):
        residual, enough = source.code(quotient.left), unused(source, "enough", loop)
        edit.before(loop, f"{enough} = {ENOUGH} * {residual}")
        edit.before(line, f"if {residual} <= {enough}:\n    break")
    elif not _goes_on_from(source, quotient, loop):
        return  # its rounds are separate: classes, groups
    else:
        bare = source.code(quotient.right.with_changes(lpar=(), rpar=()))
        edit.before(line, f"if {bare} == 0:\n    break")
    yield from case.change(edit, "stop_converged", TITLE, Tier.GUARD)


def _loop(source: Source, node: cst.CSTNode) -> cst.For | cst.While | None:
    """The loop around it in its function, if it is none that trains."""
    for above in source.ancestors(node):
        if isinstance(above, (cst.FunctionDef, cst.Lambda)):
            return None
        if isinstance(above, LOOPS):
            return None if any(word in source.code(above) for word in TRAINS) else above
    return None


def _goes_on_from(source: Source, quotient: cst.BinaryOperation, loop: cst.CSTNode) -> bool:
    """Whether it is made of what the round before has left, `(r @ r) / (p @ Ap)`."""
    names = [n for n in source.every(cst.Name, quotient) if source.reads(n)]
    for name in list(names):
        made = source.value_of(name)
        names += source.every(cst.Name, made) if made is not None else []
    for name in names:
        given = source.bindings(name.value, source.scope(quotient))
        inside = any(loop in source.ancestors(g) for g in given)
        if inside and any(source.start(g) < source.start(loop) for g in given):
            return True
    return False


def _is_carried(source: Source, node: Expression, loop: cst.CSTNode) -> bool:
    """`rs`, which is given before the loop and again in every round, at its end."""
    if not isinstance(node, cst.Name):
        return False
    given = source.bindings(node.value, source.scope(node))
    inside = [g for g in given if loop in source.ancestors(g)]
    before = [g for g in given if source.start(g) < source.start(loop)]
    return (
        bool(before) and bool(inside) and all(source.start(g) > source.start(node) for g in inside)
    )
