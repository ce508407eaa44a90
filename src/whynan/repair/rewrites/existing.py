"""An eps or a lower bound that is there already and too small: raised where its number is written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

import libcst as cst

from whynan.model import OpRecord
from whynan.repair.calls import fn, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.project import Project
from whynan.repair.rewrites.amounts import margin
from whynan.repair.rewrites.arrays import is_array
from whynan.repair.source import Expression, Source

MECHANISMS = ("division_by_zero", "log_nonpositive", "gradient_singularity", "sqrt_negative", "overflow", "invalid_domain")  # fmt: skip
GUARDS = ("add", "clamp", "clamp_min")
EDGES = (1.0, -1.0)  # where a bound ends up whose eps is rounded away
LARGEST = 1e-2  # what people still call an eps
# What a type holds: as a divisor, under a root that divides, and under a logarithm or a root.
DIVISORS = {"float16": ("1e-4", "1e-3"), "": ("1e-8", "1e-6")}
ROOTS = {"float16": ("1e-5", "1e-3"), "": ("1e-12", "1e-8")}
LOGARITHMS = {"float16": ("1e-6", "1e-4"), "": ("1e-12", "1e-8")}


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism not in MECHANISMS or case.culprit is None:
        return
    constants = Constants(Project(case))
    if is_array(case):
        yield from _in_numpy(case, constants)
        return
    before: list[str] = []
    for op in case.culprit.upstream:
        found = _numbers(case, constants, op) if op.name in GUARDS else []
        if found:
            yield from _raised(case, found, op, under_root="sqrt" in before)
            return
        before.append(op.name)


def _numbers(case: Case, constants: Constants, op: OpRecord) -> list[Place]:
    """The literal of `x + eps` or `x.clamp(min=eps)`, wherever it is written; of bounds beside -1 and 1
    that of each."""
    at_edge = op.value in EDGES
    if op.site is None or not case.is_own(op.site.file):
        return []
    if not at_edge and abs(op.value or 0.0) > LARGEST:
        return []
    source = constants.project.source(op.site.file)
    node = source.expression_at(op.site) if source is not None else None
    if source is None:
        return []
    if at_edge:
        return _literals(constants, source, _from_edge(source, node))
    return _literals(constants, source, _parts(source, node))[:1]


def _literals(constants: Constants, source: Source, parts: Iterable[Expression]) -> list[Place]:
    places = (constants.of(source, part) or _default(source, part) for part in parts)
    small = ((place, number_of(place.node) or 0.0) for place in places if place is not None)
    return list({place.node: place for place, value in small if 0 < value <= LARGEST}.values())


def _default(source: Source, name: Expression) -> Place | None:
    """Of a parameter whose callers are not known: a trial shows whether it is used."""
    given = source.bindings(name.value, source.scope(name)) if isinstance(name, cst.Name) else []
    parameter = source.parent(given[0]) if len(given) == 1 else None
    default = parameter.default if isinstance(parameter, cst.Param) else None
    return Place(source, default) if default is not None else None


def _above_what_was_seen(case: Case) -> tuple[str, ...]:
    """Under a root: rounding made it as negative as this, and may make it a few times that."""
    low = case.culprit.stats.min if case.culprit is not None and case.culprit.stats else None
    if case.mechanism != "sqrt_negative" or low is None or not -LARGEST < low < 0:
        return ()
    exponent = math.ceil(math.log10(-low)) + 1
    return (f"1e{exponent}",) if 10.0**exponent <= LARGEST else ()


def _parts(source: Source, node: Expression | None) -> Iterator[Expression]:
    """What may be the eps."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        yield from (node.right, node.left)
    call = fn(source, node)
    bound = call.argument(0, "min") if call is not None and call.name in GUARDS else None
    if bound is not None:
        yield bound


def _from_edge(source: Source, node: Expression | None) -> Iterator[Expression]:
    """The eps of `x.clamp(-1 + eps, 1 - eps)`, which the type may round away."""
    call = fn(source, node)
    if call is None or call.name not in ("clamp", "clamp_min", "clamp_max", "clip"):
        return
    for bound in (call.argument(0, "min", "max"), call.argument(1, "max")):
        if isinstance(bound, cst.BinaryOperation) and abs(number_of(bound.left) or 0) == 1:
            yield bound.right


def _in_numpy(case: Case, constants: Constants) -> Iterator[Candidate]:
    """`p = np.clip(p, eps, 1 - eps)` with an eps that p's type rounds away, before `np.log(1 - p)`."""
    source, node = case.source, case.node
    argument = node.args[0].value if isinstance(node, cst.Call) and node.args else None
    if source is None or argument is None or case.culprit is None:
        return
    name = one_minus(argument) or argument
    value = source.value_of(name)
    if not isinstance(value, cst.Call) or not source.code(value.func).endswith(".clip"):
        return
    bounds = [arg.value for arg in value.args[-2:]]
    parts = [b.right if isinstance(b, cst.BinaryOperation) else b for b in bounds]
    found = _literals(constants, source, parts)
    if found:
        ladder = (margin(case.culprit.dtype or case.dtype),)
        yield from _larger(case, found, ladder, "which is rounded away beside 1")


def _raised(
    case: Case, found: list[Place], op: OpRecord, *, under_root: bool
) -> Iterator[Candidate]:
    value, ladder = number_of(found[0].node), LOGARITHMS
    if case.mechanism == "division_by_zero":
        ladder = ROOTS if under_root else DIVISORS
    why = f"which is 0 in {op.dtype}" if op.dtype == "float16" and value else "which is too small"
    steps = (*ladder.get(op.dtype, ladder[""]), *_above_what_was_seen(case))
    if op.value in EDGES:
        steps, why = (margin(op.dtype),), f"which {op.dtype} rounds away beside 1"
    yield from _larger(case, found, steps, why)


def _larger(case: Case, found: list[Place], steps: Iterable[str], why: str) -> Iterator[Candidate]:
    first, literal = found[0], found[0].node
    there = f"{os.path.basename(first.source.path)}, line {first.source.line(literal)}"
    for larger in steps:
        edits: dict[str, Edit] = {}
        for place in found:
            value = number_of(place.node)
            if value is not None and value < float(larger) and isinstance(place.node, Expression):
                edit = edits.setdefault(place.source.path, Edit(place.source))
                edit.replace(place.node, larger)
        title = f"raise the eps of {first.source.code(literal)}, {why}, to {larger} where it is set ({there})"
        if edits:
            yield from case.change_all([*edits.values()], "raise_eps", title, Tier.GUARD)
