"""Where a probability is made: an operation, the end of a Sequential, a function of one's own, a formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from whynan.model import OpRecord
from whynan.repair.calls import fn, one_minus
from whynan.repair.case import Case
from whynan.repair.instances import Instances
from whynan.repair.places import Lost, Place, argument_for, class_of, parameter_for
from whynan.repair.project import Project
from whynan.repair.rewrites.exponentials import sigmoid_by_hand, softmax_by_hand
from whynan.repair.rewrites.log_space import below_view
from whynan.repair.source import Expression, Source

MODULES = {"_softmax": "Softmax", "sigmoid": "Sigmoid"}
Removed = tuple[Source, Expression, str]  # an expression, and what is written instead


@dataclass(frozen=True)
class Producer:
    """Where the probability is made: an expression, or the last module of a Sequential."""

    name: str  # softmax or sigmoid
    dim: str | None  # as written or recorded
    axes: int | None  # of the logits, where that was recorded
    removed: tuple[Removed, ...]
    values: tuple[Place, ...]  # the expressions that have the probability
    callee: str = ""  # of a function of the user's own

    def again(self, logits: str) -> str:
        """The probability itself, where something else needs it."""
        if self.callee:
            return f"{self.callee}({logits})"
        if self.name == "sigmoid":
            return f"torch.sigmoid({logits})"
        return f"torch.softmax({logits}, dim={self.dim})"

    def joined(self, other: Producer) -> Producer:
        """One of the same kind, whose probability goes the same way."""
        return replace(
            self, removed=self.removed + other.removed, values=self.values + other.values
        )


def producer_of(case: Case, project: Project) -> Producer | None:
    """The recorded softmax or sigmoid, found in the source."""
    recorded = (op for operand in case.origin.inputs for op in operand.upstream)
    op = next((op for op in recorded if op.name in MODULES), None)
    site = op.site if op is not None else None
    while site is not None and not case.is_own(site.file):
        site = site.caller
    source = project.source(site.file) if site is not None else None
    node = source.expression_at(site) if source is not None and site is not None else None
    if op is None or source is None or not isinstance(node, cst.Call):
        return None
    call = fn(source, node)
    if call is not None and call.name == op.name.strip("_"):
        if call.argument(9, "dtype") is not None or call.inplace:
            return None
        return _recorded(op, (source, node, source.code(call.operand)), (Place(source, node),))
    return _module(op, source, node, project)


def _recorded(op: OpRecord, removed: Removed, values: tuple[Place, ...]) -> Producer:  # fmt: skip
    stats = op.inputs[0].stats if op.inputs else None
    return Producer(
        name=op.name.strip("_"),
        dim=str(op.scalars.get("dim")),
        axes=len(stats.shape) if stats is not None else None,
        removed=(removed,),
        values=values,
    )


def written(project: Project, source: Source, node: Expression, depth: int = 8) -> Producer | None:
    """Where the text shows it: through variables, choices of elements and the user's own functions."""
    node = one_minus(node) or node
    made = _formula(source, node) or _own(project, source, node)
    if made is not None:
        return made
    place = behind(project, source, node) if depth else None
    if place is None or not isinstance(place.node, Expression):
        return None
    return written(project, place.source, place.node, depth - 1)


def _formula(source: Source, node: Expression) -> Producer | None:
    """softmax(x), or either of the two written out."""
    call, place = fn(source, node), (Place(source, node),)
    if call is not None and call.name == "softmax" and not call.inplace and len(call.rest) == 1:
        dim = call.argument(0, "dim")
        removed = (source, node, source.code(call.operand))
        return Producer("softmax", source.code(dim), None, (removed,), place) if dim else None
    shares, logit = softmax_by_hand(source, node), sigmoid_by_hand(source, node)
    if shares is not None:
        return Producer("softmax", shares[1], None, ((source, node, shares[0]),), place)
    return Producer("sigmoid", None, None, ((source, node, logit),), place) if logit else None


def formula_around(source: Source, part: Expression) -> Producer | None:
    """That of which an exponential is a part, also through a variable."""
    scope = source.scope(part)
    for quotient in source.every(cst.BinaryOperation, None if scope is source.module else scope):
        made = _formula(source, quotient) if isinstance(quotient.operator, cst.Divide) else None
        if made is None:
            continue
        names = [n for n in source.below(quotient) if isinstance(n, cst.Name)]
        values = [quotient, *filter(None, map(source.definition, names))]
        if any(part is v or part in source.below(v) for v in values):
            return made
    return None


def _own(project: Project, source: Source, node: Expression) -> Producer | None:
    """`sigmoid(x)`, a function of the user's own that is nothing but that formula."""
    found = project.function(source, node.func) if isinstance(node, cst.Call) else None
    function = found[0].node if found is not None else None
    if found is None or not isinstance(node, cst.Call) or not isinstance(function, cst.FunctionDef):
        return None
    there = found[0].source
    returns = [r.value for r in there.every(cst.Return, function)]
    made = _formula(there, returns[0]) if len(returns) == 1 and returns[0] is not None else None
    if made is None or len(node.args) != 1 or (made.dim or "0").isidentifier():
        return None
    name = parameter_for(found, node, node.args[0])
    if name is None or name.value != made.removed[0][2]:
        return None
    removed = (source, node, source.code(node.args[0].value))
    return replace(made, removed=(removed,), values=(Place(source, node),), callee=source.code(node.func))  # fmt: skip


def behind(project: Project, source: Source, node: Expression) -> Place | None:
    """What an expression has its value from, one step back."""
    part, index = source.part_of(node), None
    inner = below_view(source, node) or source.value_of(node)
    if part is not None:
        inner, index = part
    if isinstance(inner, cst.Tuple) and index is not None:
        return Place(source, inner.elements[index].value) if index < len(inner.elements) else None
    if inner is not None and index is None:
        return Place(source, inner)
    if isinstance(inner or node, cst.Call):
        made = inner or node
        assert isinstance(made, cst.Call)
        found = project.function(source, made.func)
        function = found[0] if found is not None else None
        returns = function.source.every(cst.Return, function.node) if function is not None else []
        value = returns[0].value if len(returns) == 1 else None
        if index is not None and isinstance(value, cst.Tuple) and index < len(value.elements):
            value = value.elements[index].value
        elif index is not None:
            value = None
        return Place(function.source, value) if function is not None and value is not None else None
    return _argument(project, source, node) if isinstance(node, cst.Name) else None


def _argument(project: Project, source: Source, node: cst.Name) -> Place | None:
    """Of a parameter: what the first caller gives; the flow from there looks at the others."""
    function = source.scope(node)
    if not isinstance(function, cst.FunctionDef):
        return None
    home = Place(source, function)
    skipped = int(class_of(source, function) is not None)
    for call in project.calls_of(home)[:1]:
        given = argument_for(call, home, skipped, node.value)
        return Place(call.source, given) if given is not None else None
    return None


def _module(op: OpRecord, source: Source, node: cst.Call, project: Project) -> Producer | None:
    """`self.softmax(x)`, or a Sequential that ends with one."""
    for made in _constructed(MODULES[op.name], project):
        above = made.source.parent(made.node)
        whole = made.source.parent(above) if isinstance(above, cst.Arg) else made.node
        if not isinstance(whole, cst.Call):
            continue
        try:
            runs = Instances(project).of_expression(made.source, whole)
        except Lost:
            continue  # another softmax of the program, in a list or the like
        if node not in [run.node for run in runs]:
            continue
        if isinstance(above, cst.Arg) and _ends_with(made.source, whole, above):
            removed = (made.source, whole, _without_last(made.source, whole))
            return _recorded(op, removed, tuple(runs))
        if whole is made.node and len(node.args) == 1:
            removed = (source, node, source.code(node.args[0].value))
            return _recorded(op, removed, (Place(source, node),))
    return None


def _constructed(name: str, project: Project) -> Iterator[Place]:
    for source in project.mentioning(name):
        for call in source.every(cst.Call):
            if source.code(call.func).split(".")[-1] == name:
                yield Place(source, call)


def _ends_with(source: Source, whole: cst.Call, arg: cst.Arg) -> bool:
    named = source.code(whole.func).split(".")[-1] == "Sequential"
    return named and len(whole.args) > 1 and whole.args[-1] is arg


def _without_last(source: Source, whole: cst.Call) -> str:
    """The comment beside the module before it and the closing parenthesis stay where they were."""
    *kept, before, last = whole.args
    closing = last.whitespace_after_arg
    if isinstance(last.comma, cst.Comma):
        closing = last.comma.whitespace_after
    space = before.comma.whitespace_after if isinstance(before.comma, cst.Comma) else closing
    if isinstance(space, cst.ParenthesizedWhitespace):
        if isinstance(closing, cst.ParenthesizedWhitespace):
            space = closing.with_changes(first_line=space.first_line)
        before = before.with_changes(comma=cst.Comma(whitespace_after=space))
    else:
        before = before.with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return source.code(whole.with_changes(args=[*kept, before]))
