"""An eps or a lower bound that is there already and too small: raised where its number is written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import libcst as cst

from whynan.model import OpRecord
from whynan.repair.calls import fn, number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.project import Project
from whynan.repair.source import Expression, Source

MECHANISMS = ("division_by_zero", "log_nonpositive", "gradient_singularity", "sqrt_negative", "overflow")  # fmt: skip
GUARDS = ("add", "clamp", "clamp_min")
LARGEST = 1e-2  # what people still call an eps
# What a type holds: as a divisor, under a root that divides, and under a logarithm or a root.
DIVISORS = {"float16": ("1e-4", "1e-3"), "": ("1e-8", "1e-6")}
ROOTS = {"float16": ("1e-5", "1e-3"), "": ("1e-12", "1e-8")}
LOGARITHMS = {"float16": ("1e-6", "1e-4"), "": ("1e-12", "1e-8")}


def propose(case: Case) -> Iterator[Candidate]:
    if case.mechanism not in MECHANISMS or case.culprit is None:
        return
    constants = Constants(Project(case))
    before: list[str] = []
    for op in case.culprit.upstream:
        found = _number(case, constants, op) if op.name in GUARDS else None
        if found is not None:
            yield from _raised(case, found, op, under_root="sqrt" in before)
            return
        before.append(op.name)


def _number(case: Case, constants: Constants, op: OpRecord) -> Place | None:
    """The literal of `x + eps` or `x.clamp(min=eps)`, wherever it is written."""
    if op.site is None or not case.is_own(op.site.file) or abs(op.value or 0.0) > LARGEST:
        return None
    source = constants.project.source(op.site.file)
    node = source.expression_at(op.site) if source is not None else None
    if source is None:
        return None
    for part in _parts(source, node):
        found = constants.of(source, part)
        value = number_of(found.node) if found is not None else None
        if value is not None and 0 < value <= LARGEST:
            return found
    return None


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


def _raised(case: Case, found: Place, op: OpRecord, *, under_root: bool) -> Iterator[Candidate]:
    value, literal = number_of(found.node), found.node
    assert isinstance(literal, Expression)
    ladder = LOGARITHMS
    if case.mechanism == "division_by_zero":
        ladder = ROOTS if under_root else DIVISORS
    file = os.path.basename(found.source.path)
    there = f"{file}, line {found.source.line(literal)}"
    why = f"which is 0 in {op.dtype}" if op.dtype == "float16" and value else "which is too small"
    for larger in (*ladder.get(op.dtype, ladder[""]), *_above_what_was_seen(case)):
        if value is None or float(larger) <= value:
            continue
        edit = Edit(found.source).replace(literal, larger)
        title = f"raise the eps of {found.source.code(literal)}, {why}, to {larger} where it is set ({there})"
        yield from case.change(edit, "raise_eps", title, Tier.GUARD)
