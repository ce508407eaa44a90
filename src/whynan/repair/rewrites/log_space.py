"""A logarithm of products, quotients and sums of exponentials: computed without leaving log space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from whynan.repair.calls import Fn, binary, fn, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import SAME_ELEMENTS
from whynan.repair.leftovers import only_computes
from whynan.repair.rewrites.noise import without_eps
from whynan.repair.source import ATOMS, Expression, Source

MECHANISMS = frozenset(
    {"overflow", "log_nonpositive", "gradient_singularity", "inf_over_inf", "division_by_zero",
     "inf_minus_inf", "zero_times_inf"}
)  # fmt: skip
TITLE = "stay in log space: neither the exponentials nor their quotient leave the range of the type"
DEPTH = 12


def propose(case: Case) -> Iterator[Candidate]:
    """Every logarithm of the function that has such a form, if what failed is part of one."""
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    for keeps in (True, False):
        edit, touched = Edit(source), set[cst.CSTNode]()
        for form in _forms(source, node, keeps):
            edit.replace(form.log.node, form.text).inline(form.values)
            for value, text in form.kept.items():
                edit.replace(value, text)
            touched |= form.touched()
        if node in touched and not edit.is_nested():
            yield from case.change(edit, "log_space", TITLE, Tier.EXACT)
            return


def _forms(source: Source, node: Expression, keeps: bool) -> list[Form]:
    scope = source.scope(node)
    found = []
    for call in source.every(cst.Call, None if scope is source.module else scope):
        log = fn(source, call)
        if log is None or log.name != "log" or log.inplace or log.rest:
            continue
        form = Form(source, log, keeps)
        text = form.of(log.operand)
        if text is not None and form.leaves:
            form.text = text
            found.append(form)
    if not keeps:
        return found
    consumed = {part for form in found for part in form.touched()}
    kept = {value for form in found for value in form.kept}
    if all(_is_consumed(source, value, consumed) for value in kept):
        return found
    return []


def _is_consumed(source: Source, value: Expression, consumed: set[cst.CSTNode]) -> bool:
    """Whether the exponential is read by these logarithms only."""
    above = source.parent(value)
    name = above.targets[0].target if isinstance(above, cst.Assign) else None
    if not isinstance(name, cst.Name):
        return False
    return all(use in consumed for use in source.other_uses(name.value, name))


@dataclass
class Form:
    """One logarithm, and what is written instead."""

    source: Source
    log: Fn
    keeps: bool  # a variable that held an exponential may hold the exponent
    text: str = ""
    values: list[Expression] = field(default_factory=list)  # of variables that were taken over
    kept: dict[Expression, str] = field(default_factory=dict)
    leaves: int = 0  # exponentials and the like that were undone
    depth: int = 0

    def touched(self) -> set[cst.CSTNode]:
        tops: list[cst.CSTNode] = [self.log.node, *self.values, *self.kept]
        return {part for top in tops for part in (top, *self.source.below(top))}

    def of(self, node: Expression) -> str | None:
        """The logarithm of an expression."""
        self.depth += 1
        try:
            return self._of(without_eps(node)) if self.depth <= DEPTH else None
        finally:
            self.depth -= 1

    def _of(self, node: Expression) -> str | None:
        for attempt in (self._variable, self._known, self._quotient, self._view, self._reduction):
            text = attempt(node)
            if text is not None:
                return text
        return None

    def _variable(self, node: Expression) -> str | None:
        value = self.source.definition(node)
        if value is None or not isinstance(node, cst.Name):
            return None
        exp = fn(self.source, value)
        is_exp = exp is not None and exp.name == "exp" and not exp.inplace
        if self.keeps and exp is not None and is_exp and not isinstance(exp.operand, cst.Name):
            self.kept[value] = self.source.code(exp.operand)
            self.leaves += 1
            return node.value
        if not only_computes(self.source, value) and self.source.other_uses(node.value, node):
            return None  # the model would run twice
        text = self.of(value)
        if text is not None:
            self.values.append(value)
        return text

    def _known(self, node: Expression) -> str | None:
        text = known_log(self.source, node)
        self.leaves += text is not None
        return text

    def _quotient(self, node: Expression) -> str | None:
        divided, product = binary(node, cst.Divide), binary(node, cst.Multiply)
        parts = divided or product
        if parts is None:
            return None
        if divided is not None and number_of(divided.left) == 1:
            if (negated := self._sigmoid(divided)) is not None:
                return negated
            below = self.of(divided.right)
            return f"-{factor(below)}" if below is not None else None
        left, right = self.of(parts.left), self.of(parts.right)
        if left is None or right is None:
            return None
        return f"{left} - {factor(right)}" if divided is not None else f"{left} + {right}"

    def _sigmoid(self, divided: cst.BinaryOperation) -> str | None:
        """1 / (1 + exp(-x)) is the sigmoid of x."""
        exponent = _one_plus_exp(self.source, divided.right)
        if exponent is None:
            return None
        self.leaves += 1
        inner = exponent[1:] if exponent.startswith("-") else f"-{factor(exponent)}"
        return f"{self.source.functional()}.logsigmoid({inner})"

    def _view(self, node: Expression) -> str | None:
        """The same elements, fewer or elsewhere."""
        below, call = below_view(self.source, node), fn(self.source, node)
        text = self.of(below) if below is not None else None
        if below is None or text is None:
            return None
        method = not (call is not None and call.namespace is not None)
        inside = cst.parse_expression(receiver(text) if method else text)
        return self.source.code(node.deep_replace(below, inside))

    def _reduction(self, node: Expression) -> str | None:
        call = fn(self.source, node)
        inner = fn(self.source, call.operand) if call is not None and call.name == "abs" else None
        if inner is not None and inner.name == "det":
            self.leaves += 1
            return f"torch.linalg.slogdet({self.source.code(inner.operand)}).logabsdet"
        if call is None or call.inplace or call.name not in ("sum", "prod", "det"):
            return None
        if call.name == "det":
            self.leaves += 1
            return f"torch.logdet({self.source.code(call.operand)})"
        inside = self.of(call.operand)
        if inside is None:
            return None
        if call.name == "prod":
            return call.rebuilt("sum", receiver(inside) if call.namespace is None else inside)
        if call.rest:
            return call.rebuilt("logsumexp", inside, namespace="torch")
        return f"torch.logsumexp({receiver(inside)}.flatten(), dim=0)"


def receiver(text: str) -> str:
    parsed = cst.parse_expression(text)
    return text if isinstance(parsed, ATOMS[:4]) or parsed.lpar else f"({text})"


def factor(text: str) -> str:
    """As the right side of a minus."""
    parsed = cst.parse_expression(text)
    loose = isinstance(parsed, cst.BinaryOperation) and not parsed.lpar
    return f"({text})" if loose or isinstance(parsed, cst.UnaryOperation) else text


def known_log(source: Source, node: Expression) -> str | None:
    """Of exp, softmax, sigmoid, and the sums and differences with 1 that have a name."""
    functional = source.functional()
    rest, call = one_minus(node), fn(source, node)
    inner = fn(source, rest) or fn(source, source.definition(rest) if rest is not None else None)
    if inner is not None and inner.name == "sigmoid":
        return f"{functional}.logsigmoid(-{source.receiver(inner.operand)})"
    if (raised := _one_plus_exp(source, node)) is not None:
        return f"{functional}.softplus({raised})"
    if call is None or call.inplace:
        return None
    if call.name == "exp":
        return source.code(call.operand)
    if call.name == "sigmoid":
        return f"{functional}.logsigmoid({source.code(call.operand)})"
    if call.name == "softmax":
        named = call.namespace is not None
        operand = source.code(call.operand) if named else source.receiver(call.operand)
        return call.rebuilt("log_softmax", operand)
    return None


def _one_plus_exp(source: Source, node: Expression) -> str | None:
    """u of `1 + exp(u)`."""
    plus = binary(node, cst.Add)
    for one, other in ((plus.left, plus.right), (plus.right, plus.left)) if plus else ():
        exp = fn(source, other) or fn(source, source.definition(other))
        if number_of(one) == 1 and exp is not None and exp.name == "exp":
            return source.code(exp.operand)
    return None


def below_view(source: Source, node: Expression) -> Expression | None:
    """What an operation takes that only chooses or rearranges elements."""
    if isinstance(node, cst.Subscript) or (
        isinstance(node, cst.Attribute) and node.attr.value in ("T", "mT")
    ):
        return node.value
    call = fn(source, node)
    return (
        call.operand
        if call is not None and call.name in SAME_ELEMENTS and not call.inplace
        else None
    )
