"""A logarithm of products, quotients and sums of exponentials: computed without leaving log space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from whynan.ops.table import reading
from whynan.repair.calls import Fn, binary, fn, is_one, number_of, one_minus
from whynan.repair.case import Candidate, Case, Tier
from whynan.repair.edit import Edit
from whynan.repair.flow import SAME_ELEMENTS
from whynan.repair.leftovers import only_computes
from whynan.repair.rewrites.known_logs import known_log, one_plus_exp
from whynan.repair.rewrites.noise import without_eps
from whynan.repair.source import ATOMS, Expression, Source

MECHANISMS = frozenset(
    {"overflow", "log_nonpositive", "gradient_singularity", "inf_over_inf", "division_by_zero",
     "inf_minus_inf", "zero_times_inf"}
)  # fmt: skip
TITLES = {
    "log_space": "stay in log space: neither the exponentials nor their quotient leave the range of the type",
    "softplus": "use `softplus`, which does not compute the exponential of a large number",
    "logsumexp": "sum in log space: `logsumexp` neither overflows nor rounds to 0",
    "logdet": "take the logarithm of the determinant without computing the determinant",
}
DEPTH = 12
DIAGONALS = ("diag", "diagonal")
JOINS = reading("join")


def propose(case: Case, *, open_: bool = False) -> Iterator[Candidate]:
    """Every logarithm of the function that has such a form, if what failed is part of one."""
    source, node = case.source, case.node
    if source is None or node is None or case.mechanism not in MECHANISMS:
        return
    for keeps in (True, False):
        edit, touched = Edit(source), set[cst.CSTNode]()
        forms = _forms(source, node, keeps, open_)
        for form in forms:
            edit.replace(form.log.node, form.text).inline(form.values)
            for value, text in form.kept.items():
                edit.replace(value, text)
            touched |= form.touched()
        if node in touched and not edit.is_nested():
            alone = fn(source, cst.parse_expression(forms[0].text)) if len(forms) == 1 else None
            kind = alone.name if alone is not None and alone.name in TITLES else "log_space"
            yield from case.change(edit, kind, TITLES[kind], Tier.EXACT)
            return


def _forms(source: Source, node: Expression, keeps: bool, open_: bool) -> list[Form]:
    scope = source.scope(node)
    found = []
    for call in source.every(cst.Call, None if scope is source.module else scope):
        log = fn(source, call)
        if log is None or log.name != "log" or log.inplace or log.rest:
            continue
        form = Form(source, log, keeps, open_)
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
    open: bool = (
        False  # a function of the user's may be a factor: its logarithm is looked into later
    )
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
        for attempt in (
            self._variable,
            self._known,
            self._without_own,
            self._sum,
            self._power,
            self._quotient,
            self._view,
            self._reduction,
            self._joined,
        ):
            text = attempt(node)
            if text is not None:
                return text
        return None

    def _factor(self, node: Expression) -> str | None:
        """Of one factor beside exponentials: a number, or something positive as it stands."""
        before = self.leaves, [*self.values], {**self.kept}
        text = self.of(node)
        if text is not None:
            return text
        self.leaves, self.values, self.kept = before
        if (value := number_of(node)) is not None:
            return f"math.log({self.source.code(node)})" if value > 0 else None
        code = self.source.code(node)
        if isinstance(node, cst.Call) and code.startswith("math."):
            return f"math.log({code})"
        parts = binary(node, cst.Multiply)
        if parts is not None:
            left, right = self._factor(parts.left), self._factor(parts.right)
            return f"{left} + {right}" if left is not None and right is not None else None
        if self.open and isinstance(node, cst.Call) and fn(self.source, node) is None:
            self.leaves += 1
            return f"{code}.log()"  # what the user's function returns
        is_plain = isinstance(node, (cst.Name, cst.Attribute, cst.Subscript))
        if is_plain and _is_exponential(self.source, node):
            return None  # it would leave the range before its logarithm is taken
        return f"{self.source.receiver(node)}.log()" if is_plain else None

    def _sum(self, node: Expression) -> str | None:
        """exp(a) + exp(b)."""
        total = binary(node, cst.Add)
        left = self.of(total.left) if total is not None else None
        right = self.of(total.right) if total is not None and left is not None else None
        return f"torch.logaddexp({left}, {right})" if right is not None else None

    def _without_own(self, node: Expression) -> str | None:
        """`e.sum(1) - e.diag()`: all but the one on the diagonal."""
        difference = binary(node, cst.Subtract)
        total = fn(self.source, difference.left) if difference is not None else None
        own = fn(self.source, difference.right) if difference is not None else None
        if total is None or own is None or total.name != "sum" or own.name not in DIAGONALS:
            return None
        if own.rest or not total.rest or not self.source.same(total.operand, own.operand):
            return None
        inside = self.of(total.operand)
        if inside is None or not inside.isidentifier():
            return None
        eye = f"torch.eye(len({inside}), dtype=torch.bool, device={inside}.device)"
        return total.rebuilt(
            "logsumexp", f"{inside}.masked_fill({eye}, -torch.inf)", namespace="torch"
        )

    def _variable(self, node: Expression) -> str | None:
        value = self.source.definition(node) or (self.source.value_of(node) if self.keeps else None)
        if value is None or not isinstance(node, cst.Name):
            return None
        if self.keeps and self._is_kept(node, value):
            text = self.kept.get(value) or self.of(value)
            if text is not None:
                self.kept[value] = text
            return node.value if text is not None else None
        if not only_computes(self.source, value) and self.source.other_uses(node.value, node):
            return None  # the model would run twice
        text = self.of(value)
        if text is not None:
            self.values.append(value)
        return text

    def _is_kept(self, node: cst.Name, value: Expression) -> bool:
        """An exponential worth a line of its own, or a name that means another value in its own."""
        exp = fn(self.source, value)
        if exp is not None and exp.name == "exp" and not exp.inplace:
            return not isinstance(exp.operand, cst.Name)
        return any(
            isinstance(n, cst.Name) and n.value == node.value for n in self.source.below(value)
        )

    def _known(self, node: Expression) -> str | None:
        text = known_log(self.source, node)
        self.leaves += text is not None
        return text

    def _power(self, node: Expression) -> str | None:
        """`x ** c`, `x.pow(c)`, `x.sqrt()`."""
        power, call = binary(node, cst.Power), fn(self.source, node)
        base: Expression | None = None
        exponent = ""
        if power is not None:
            base, exponent = power.left, self.source.receiver(power.right)
        elif call is not None and call.name == "sqrt" and not call.inplace:
            base, exponent = call.operand, "0.5"
        elif call is not None and call.name == "pow" and not call.inplace and call.rest:
            given = call.rest[0].value
            plain = number_of(given) is not None
            base, exponent = call.operand, self.source.code(given) if plain else self.source.receiver(given)  # fmt: skip
        text = self.of(base) if base is not None else None
        return f"{exponent} * {factor(text)}" if text is not None else None

    def _quotient(self, node: Expression) -> str | None:
        divided, product = binary(node, cst.Divide), binary(node, cst.Multiply)
        parts = divided or product
        if parts is None:
            return None
        if divided is not None and is_one(divided.left):
            if (negated := self._sigmoid(divided)) is not None:
                return negated
            below = self.of(divided.right)
            return f"-{factor(below)}" if below is not None else None
        before = self.leaves
        masked = self._masked(parts) if product is not None else None
        if masked is not None:
            return masked
        left, right = self._factor(parts.left), self._factor(parts.right)
        if left is None or right is None or self.leaves == before:
            return None
        text = f"{left} - {factor(right)}" if divided is not None else f"{left} + {right}"
        return text.replace(" + -", " - ")

    def _masked(self, product: cst.BinaryOperation) -> str | None:
        """`e * mask`: what is left out has a logarithm of -inf, which a sum in log space takes."""
        for mask, other in ((product.left, product.right), (product.right, product.left)):
            if not _is_mask(self.source, mask):
                continue
            inside = self.of(other)
            if inside is not None:
                test = f"{self.source.receiver(mask)} == 0"
                return f"{receiver(inside)}.masked_fill({test}, -torch.inf)"
        return None

    def _sigmoid(self, divided: cst.BinaryOperation) -> str | None:
        """1 / (1 + exp(-x)) is the sigmoid of x."""
        exponent = one_plus_exp(self.source, divided.right)
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
        if call is not None and call.name == "det" and not call.inplace:
            self.leaves += 1
            return f"torch.logdet({self.source.code(call.operand)})"
        along = {"cumsum": "logcumsumexp", "prod": "sum"}
        if call is None or call.inplace or call.name not in ("sum", "mean", *along):
            return None
        inside = self.of(call.operand)
        if inside is None:
            return None
        if call.name in along:
            text = receiver(inside) if call.namespace is None else inside
            return call.rebuilt(along[call.name], text)
        total = f"torch.logsumexp({receiver(inside)}.flatten(), dim=0)"
        if call.rest:
            total = call.rebuilt("logsumexp", inside, namespace="torch")
        if call.name == "sum":
            return total
        dim = call.argument(0, "dim", "axis")
        many = f"shape[{self.source.code(dim)}]" if dim is not None else "numel()"
        one = dim is None or not isinstance(dim, (cst.Tuple, cst.List))
        return f"{total} - math.log({receiver(inside)}.{many})" if one else None

    def _joined(self, node: Expression) -> str | None:
        """`torch.cat([e, f], dim)`: of each part."""
        call = fn(self.source, node)
        parts = call.operand if call is not None and call.name in JOINS else None
        if call is not None and isinstance(parts, cst.ListComp) and not call.inplace:
            inside = self.of(parts.elt)
            text = self.source.code(parts)[len(self.source.code(parts.elt)) + 1 :]
            return call.rebuilt(call.name, f"[{inside}{text}") if inside is not None else None
        if call is None or not isinstance(parts, (cst.List, cst.Tuple)) or call.inplace:
            return None
        texts = [self.of(e.value) for e in parts.elements if isinstance(e, cst.Element)]
        if None in texts or len(texts) != len(parts.elements):
            return None
        inside = ", ".join(t for t in texts if t is not None)
        return call.rebuilt(call.name, f"[{inside}]" if isinstance(parts, cst.List) else f"({inside})")  # fmt: skip


def _is_exponential(source: Source, node: Expression, depth: int = 4) -> bool:
    """Whether an exponential goes into it, as far as the function shows."""
    value = source.value_of(node)
    if value is None or depth == 0:
        return False
    for part in (value, *source.below(value)):
        call = fn(source, part)
        if call is not None and call.name == "exp":
            return True
        if isinstance(part, cst.Name) and _is_exponential(source, part, depth - 1):
            return True
    return False


def _is_mask(source: Source, node: Expression) -> bool:
    """Ones and zeros, by the way it is made: a comparison, an identity, 1 minus one of these."""
    node = source.definition(node) or node
    rest = one_minus(node)
    if rest is not None:
        return _is_mask(source, rest)
    call = fn(source, node)
    if call is not None and call.name in ("float", "to", "type", "bool", "double"):
        inner = source.definition(call.operand) or call.operand
        return isinstance(inner, cst.Comparison) or _is_mask(source, inner)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return True
    name = source.code(node.func).split(".")[-1] if isinstance(node, cst.Call) else ""
    return isinstance(node, cst.Comparison) or name in ("eye", "eye_like", "eq", "ne")


def receiver(text: str) -> str:
    parsed = cst.parse_expression(text)
    return text if isinstance(parsed, ATOMS[:4]) or parsed.lpar else f"({text})"


def factor(text: str) -> str:
    """As the right side of a minus."""
    parsed = cst.parse_expression(text)
    loose = isinstance(parsed, cst.BinaryOperation) and not parsed.lpar
    return f"({text})" if loose or isinstance(parsed, cst.UnaryOperation) else text


def below_view(source: Source, node: Expression) -> Expression | None:
    """What an operation takes that only chooses or rearranges elements."""
    if isinstance(node, cst.Subscript) or (
        isinstance(node, cst.Attribute) and node.attr.value in ("T", "mT")
    ):
        return node.value
    call = fn(source, node)
    if call is None or call.inplace:
        return None
    own = call.name == "diag" and not call.rest  # of a matrix; of a vector it makes one, and fails
    return call.operand if own or call.name in SAME_ELEMENTS else None
