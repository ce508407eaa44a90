"""Steps that nothing bounds: of L-BFGS without a line search, of an integrator, of a recurrence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from whynan.repair.calls import number_of
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.constants import Constants
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.rewrites.training import optimizers, with_keyword
from whynan.repair.source import Expression, Source

STEP = re.compile(r"(dt|h|delta_?t|step|step_?size|time_?step|tau)(_\w+)?", re.IGNORECASE)
FINER = (20, 100)  # times; a step that only just stays finite is not yet right
DIVIDES = (cst.Divide, cst.FloorDivide)
LINE_SEARCH = (
    "let L-BFGS search along its direction (strong Wolfe): without a search its steps are as long as "
    "its guess of the curvature makes them"
)
RECURRENCE = "let the recurrence hand on values between -1 and 1, by `tanh`: ReLU lets them grow with each item of a long sequence"
SHORTER = "an explicit step is stable only where it is short against what it follows"


def propose(case: Case) -> Iterator[Candidate]:
    if case.origin.phase in ("data", "init"):
        return
    yield from _searched(case)
    if case.anomaly.evidence.around.growth is not None:
        yield from _integrated(case)
        yield from _recurrent(case)


def _searched(case: Case) -> Iterator[Candidate]:
    for source in case.files():
        for call in optimizers(source):
            name = source.code(call.func).split(".")[-1]
            if name == "LBFGS" and "line_search_fn" not in source.code(call):
                edit = with_keyword(source, call, "line_search_fn", '"strong_wolfe"')
                yield from case.change(edit, "line_search", LINE_SEARCH, Tier.TRAINING)


def _recurrent(case: Case) -> Iterator[Candidate]:
    """`nn.RNN(..., nonlinearity="relu")`, whose state may grow with each item of a sequence."""
    for source in case.files():
        given = [
            (call, arg)
            for call in source.every(cst.Call)
            for arg in call.args
            if arg.keyword is not None and arg.keyword.value == "nonlinearity"
            if source.code(call.func).split(".")[-1] in ("RNN", "RNNCell")
        ]
        if len(given) == 1 and source.code(given[0][1].value).strip("'\"") == "relu":
            edit = Edit(source).replace(given[0][1].value, '"tanh"')
            yield from case.change(edit, "bounded_recurrence", RECURRENCE, Tier.TRAINING)


# ---- x = x + dt * f(x) ---------------------------------------------------------------------------


def _integrated(case: Case) -> Iterator[Candidate]:
    constants = Constants(Project(case))
    for source, line in _updates(case, constants.project):
        for found in _lengths(constants, source, line):
            value = number_of(found.node)
            if value is None or not isinstance(found.node, Expression):
                continue
            if value > 0 and _counts_the_rounds(constants, source, found, line):
                yield from _shorter(case, found, found.node, value)
            return


def _updates(case: Case, project: Project) -> Iterator[tuple[Source, cst.SimpleStatementLine]]:
    """The line of a loop in which the failing values are made of those of the round before."""
    seen = set[tuple[str, int]]()
    for op in (case.origin, *(o for i in case.origin.inputs for o in i.upstream)):
        site = op.site
        while site is not None:
            home = project.source(site.file) if case.is_own(site.file) else None
            if home is not None and (home.path, site.line) not in seen:
                seen.add((home.path, site.line))
                for line in home.every(cst.SimpleStatementLine):
                    if home.line(line) == site.line and _is_update(home, line):
                        yield home, line
            site = site.caller


def _is_update(source: Source, line: cst.SimpleStatementLine) -> bool:
    """`s = s + dt * f(s)`, `s += dt * f(s)`, in a loop."""
    part, loops = line.body[0], (cst.For, cst.While)
    if not any(isinstance(above, loops) for above in source.ancestors(line)):
        return False
    if isinstance(part, cst.AugAssign):
        return isinstance(part.operator, (cst.AddAssign, cst.SubtractAssign))
    total = part.value if isinstance(part, cst.Assign) else None
    if not isinstance(part, cst.Assign) or not isinstance(total, cst.BinaryOperation):
        return False
    return source.same(part.targets[0].target, total.left) and ".grad" not in source.code(line)


def _lengths(
    constants: Constants, source: Source, node: cst.CSTNode, depth: int = 3
) -> Iterator[Place]:
    """The literals behind what is called a step in it, also behind the names in it."""
    for part in source.below(node):
        if not isinstance(part, (cst.Name, cst.Attribute, cst.Subscript)):
            continue
        if STEP.fullmatch(_called(source, part)) and (found := constants.of(source, part)):
            yield found
        elif isinstance(part, cst.Name) and depth and source.reads(part):
            value = source.value_of(part)
            yield from _lengths(constants, source, value, depth - 1) if value is not None else ()


def _called(source: Source, node: Expression) -> str:
    return re.split(r"[.\[]", source.code(node))[-1].strip("]'\"")


def _counts_the_rounds(
    constants: Constants, source: Source, found: Place, line: cst.SimpleStatementLine
) -> bool:
    """`n = round(span / dt)`, `arange(0, end, dt)`: with shorter steps there are more of them."""
    try:
        files = [source, *constants.project.everything()]
    except Lost:
        return False
    for file in files:
        divisors = [
            q.right for q in file.every(cst.BinaryOperation) if isinstance(q.operator, DIVIDES)
        ]
        ranges = [a.value for c in file.every(cst.Call) for a in c.args if _called(file, c.func) == "arange"]  # fmt: skip
        for part in (*divisors, *ranges):
            if STEP.fullmatch(_called(file, part)):
                literal = constants.of(file, part)
                if literal is not None and literal.node is found.node:
                    return True
    return False


def _shorter(case: Case, found: Place, node: Expression, value: float) -> Iterator[Candidate]:
    where = f"{os.path.basename(found.source.path)}, line {found.source.line(node)}"
    for times in FINER:
        text = _text(value / times)
        title = f"integrate with steps of {text} in place of {value:g}, where that is set ({where}): {SHORTER}"
        edit = Edit(found.source).replace(node, text)
        finer = Edit(found.source).replace(node, _text(value / times / 2))
        for half in case.change(finer, "shorter_steps", title, Tier.GUARD):
            for whole in case.change(edit, "shorter_steps", title, Tier.GUARD):
                yield replace(whole, finer=half.texts)


def _text(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-")
