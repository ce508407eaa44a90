"""What is counted from 0 and divides, or has its logarithm taken: counted from 1."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

import libcst as cst

from whynan.ops.table import that
from whynan.repair.calls import binary, fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place, class_of, given_by
from whynan.repair.project import Project
from whynan.repair.rewrites.plain import NUMBERS, again, is_plain
from whynan.repair.rewrites.schedules import FROM_NUMBERS, SINGULAR, behind, written
from whynan.repair.source import Expression, Source

SMALL = "0.01"
LOGARITHMS = ("log", "log2", "log10")
SCHEDULES = ("LambdaLR", "MultiplicativeLR")  # they count from 0
PICKS = that("picks") | {"index", "select"}
TABLES = (
    cst.List,
    cst.ListComp,
    cst.Tuple,
    cst.GeneratorExp,
)  # many numbers, none of them a counter
TITLE = "count from 1: number 0 can neither divide nor have a logarithm"


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism in SINGULAR:
        yield from _from_1(case)
    yield from _counted(case, Constants(Project(case)))


def _from_1(case: Case) -> Iterator[Candidate]:
    """`torch.arange(n)` under a root, a logarithm or a division."""
    for op in case.culprit.upstream if case.culprit is not None else ():
        if op.name == "arange" and op.value == 0:
            place = written(case, op)
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
        names = [n for n in names if not _is_handed_over(source, n, divisor)]
        names = [n for n in names if not isinstance(source.parent(n), cst.Attribute)]
        counters: list[Expression] = [n for n in names if _gives(constants, source, n)]
        counters = counters or _counted_up(source, parts)
        if len(counters) != 1:
            continue
        counter, name = counters[0], source.code(counters[0])
        if isinstance(counter, cst.Attribute) or _is_numbered(constants, source, counter):
            edit = Edit(source).replace(counter, f"{name} + 1")
        elif any(type(x) is float and x == 0 for x in case.origin.scalars.values()):
            continue  # a number that runs down to 0, not one of things
        elif not isinstance(counter, cst.Name) or not _is_parameter(constants, source, counter):
            continue  # a loop gives it as it is: what it counts was not there
        elif (zeros := _fractions_of_0(constants, source, counter)) is not None:
            yield from _positive(case, zeros)
            continue
        else:
            edit = Edit(source).replace(counter, f"max({name}, 1)")
        yield from case.change(edit, "count_from_1", TITLE, Tier.GUARD)


def _fractions_of_0(constants: Constants, source: Source, name: cst.Name) -> list[Place] | None:
    """What is given for a parameter, if it is no number of things: `Noise(0.0)`; those that are 0."""
    above = _gives(constants, source, name)
    try:
        given = [*constants.given_for(source, above)] if isinstance(above, cst.Param) else []
    except Lost:
        return None
    literals = [constants.of(p.source, p.node) for p in given if isinstance(p.node, Expression)]
    found = {p.node: p for p in literals if p is not None}
    if not any(isinstance(p.node, cst.Float) for p in found.values()):
        return None
    return [p for p in found.values() if number_of(p.node) == 0]


def _positive(case: Case, zeros: list[Place]) -> Iterator[Candidate]:
    """`NOISE = 0.0` whose logarithm is taken: a small number where it is set."""
    if len(zeros) == 1 and isinstance(zeros[0].node, Expression):
        source, node = zeros[0].source, zeros[0].node
        where = f"{os.path.basename(source.path)}, line {source.line(node)}"
        title = f"begin above 0, at {SMALL} say, where 0 is set ({where}): it has no logarithm and can divide nothing"
        edit = Edit(source).replace(node, SMALL)
        yield from case.change(edit, "positive_setting", title, Tier.GUARD)


def _counted_up(source: Source, parts: Iterable[cst.CSTNode]) -> list[Expression]:
    """`self.turn`, which begins at 0 and is given 1 more somewhere in the file; also behind a name."""
    found: list[Expression] = []
    for part in parts:
        value = source.value_of(part) if isinstance(part, cst.Name) else None
        if isinstance(value, cst.Call) and len(value.args) == 1:
            found += _counted_up(source, [value.args[0].value])  # `n = np.float32(self.turn)`
        if not isinstance(part, cst.Attribute):
            continue
        name, assigns = source.code(part), source.every(cst.Assign)
        given = [number_of(v) for a in assigns for t, v in given_by(a) if source.code(t) == name]
        grown = [
            number_of(more.value)
            for more in source.every(cst.AugAssign)
            if source.code(more.target) == name and isinstance(more.operator, cst.AddAssign)
        ]
        if given == [0] and grown == [1]:
            found.append(part)
    return found


def _is_handed_over(source: Source, name: cst.Name, within: Expression) -> bool:
    """To a function of the user's own, which may make anything of it."""
    for above in source.ancestors(name):
        if isinstance(above, cst.Call):
            owner, _, last = source.code(above.func).rpartition(".")
            if not owner.startswith(("np", "numpy", "torch", "math")) and last not in NUMBERS:
                return True
        if above is within:
            return False
    return False


def _divisors(case: Case, constants: Constants) -> Iterator[tuple[Source, Expression]]:
    """Of the expression that failed, a logarithm's argument as well, or of one whose infinite result torch was given as a number."""
    home = constants.project.source(case.site.file) if case.site is not None else None
    plain = is_plain(case) or case.origin.op.startswith("array.")
    plain &= case.mechanism in ("division_by_zero", "log_nonpositive")
    if plain and home is not None and case.node is not None and case.source is not None:
        yield from ((home, d) for d in _divided_by(home, again(home, case.source, case.node)))
    for op in case.culprit.upstream if case.culprit is not None else ():
        place = written(case, op) if op.name in FROM_NUMBERS and op.value == 0 else None
        source = constants.project.source(place[0].path) if place is not None else None
        call = again(source, *place) if source is not None and place is not None else None
        first = call.args[0].value if isinstance(call, cst.Call) and call.args else None
        if source is not None and first is not None and not isinstance(first, TABLES):
            yield source, first  # `torch.tensor(2.0 * layer)`
    made = [op for operand in case.origin.inputs for op in operand.upstream]
    for op in (case.origin, *made):
        numbers = [x for x in op.scalars.values() if isinstance(x, float)]
        place = written(case, op) if not all(map(math.isfinite, numbers)) else None
        source = constants.project.source(place[0].path) if place is not None else None
        if place is None or source is None:
            continue
        for part in source.below(again(source, *place)):
            known = part if isinstance(part, (cst.Name, cst.Call)) else None
            value = behind(constants, source, known) if known is not None else None
            if value is not None:
                yield from ((value.source, d) for d in _divided_by(value.source, value.node))


def _divided_by(source: Source, node: cst.CSTNode) -> Iterator[Expression]:
    for part in (node, *source.below(node)):
        quotient, power = binary(part, cst.Divide), binary(part, cst.Power)
        if quotient is not None:
            yield quotient.right
        if isinstance(part, cst.Call) and source.code(part.func).split(".")[-1] in LOGARITHMS:
            yield from (a.value for a in part.args[:1])
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


def _is_parameter(constants: Constants, source: Source, name: cst.Name) -> bool:
    return isinstance(_gives(constants, source, name), cst.Param)


def _is_numbered(
    constants: Constants, source: Source, name: Expression | None, depth: int = 4
) -> bool:
    """Whether it numbers things: `for i in range(n)`, `enumerate(layers)`, also in the callers."""
    if not isinstance(name, cst.Name) or depth == 0:
        return False
    above = _gives(constants, source, name)
    if isinstance(above, (cst.For, cst.CompFor)):
        over, target = source.code(above.iter), above.target
        first = target.elements[0].value if isinstance(target, cst.Tuple) else target
        is_first = isinstance(first, cst.Name) and first.value == name.value
        return over.startswith("range(") or (over.startswith("enumerate(") and is_first)
    if not isinstance(above, cst.Param):
        return False
    if _is_a_schedule(constants, source, above):
        return True
    try:
        given = list(constants.given_for(source, above))
    except Lost:
        return False
    return bool(given) and all(
        isinstance(p.node, Expression) and _is_numbered(constants, p.source, p.node, depth - 1)
        for p in given
    )


def _is_a_schedule(constants: Constants, source: Source, parameter: cst.Param) -> bool:
    """Of `LambdaLR(optimizer, f)`: `f` may be a function, a lambda, or an object that is called."""
    function = source.scope(parameter)
    owner = class_of(source, function) if isinstance(function, cst.FunctionDef) else None
    named = owner or function
    name = named.name.value if isinstance(named, (cst.FunctionDef, cst.ClassDef)) else None
    try:
        files = list(constants.project.mentioning(name)) if name is not None else [source]
    except Lost:
        return False
    calls = [(file, call) for file in files for call in file.every(cst.Call)]
    for file, call in calls:
        if file.code(call.func).split(".")[-1] not in SCHEDULES:
            continue
        parts = [*file.below(call)]
        made = [constants.value(file, p) for p in parts if isinstance(p, cst.Name)]
        parts += [part for m in made if m is not None for part in (m.node, *m.source.below(m.node))]
        if any(p is function or (isinstance(p, cst.Name) and p.value == name) for p in parts):
            return True
    return False
