"""The logarithm of what a loop multiplies, divides and sums, as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from whynan.model import OpRecord
from whynan.repair.calls import binary, call_of, fn, number_of
from whynan.repair.case import Case
from whynan.repair.leftovers import only_computes
from whynan.repair.rewrites.amounts import unused
from whynan.repair.rewrites.carried import Carried
from whynan.repair.rewrites.known_logs import known_log
from whynan.repair.rewrites.log_space import below_view, factor, receiver
from whynan.repair.rewrites.noise import without_eps
from whynan.repair.source import Expression, Source

MATMULS = ("matmul", "mv", "mm")
ONES = {"ones": "zeros", "ones_like": "zeros_like", "new_ones": "new_zeros"}
COUNTS = ("shape", "size", "numel", "len")


class Unknown(Exception):
    """A part whose logarithm is not known for certain."""


@dataclass
class LogProduct:
    """Logarithms of the carried variables and of all that goes into them."""

    case: Case
    source: Source
    carried: Carried
    inlined: list[Expression] = field(default_factory=list)
    _hoisted: dict[str, tuple[cst.Name, str, str]] = field(default_factory=dict)
    _closed: bool = False

    def named(self, name: str) -> str:
        return unused(self.source, f"log_{name}", self.carried.loop)

    def of(self, node: Expression, *, closed: bool = False) -> str:
        """`closed`: nothing is taken in that the loop does not multiply itself."""
        before, self._closed = self._closed, closed or self._closed
        try:
            return self._of(without_eps(node))
        finally:
            self._closed = before

    def _of(self, node: Expression) -> str:
        for attempt in (self._name, self._matmul, self._arithmetic, self._call, self._part):
            text = attempt(node)
            if text is not None:
                return text
        if self._closed or self._holds_carried(node):
            raise Unknown
        return self._plain(node)

    def _holds_carried(self, node: Expression) -> bool:
        nodes = (node, *self.source.below(node))
        return any(isinstance(n, cst.Name) and n.value in self.carried.given for n in nodes)

    def _plain(self, node: Expression) -> str:
        """Of what the loop is given: a probability, or a number of things."""
        if number_of(node) is not None or self._is_number_of_things(node):
            return f"math.log({self.source.code(node)})"
        return known_log(self.source, node) or f"{self.source.receiver(node)}.log()"

    def _is_number_of_things(self, node: Expression) -> bool:
        """`x.shape[0]`, `len(x)`, `x.size(0)`."""
        node = node.value if isinstance(node, cst.Subscript) else node
        node = node.func if isinstance(node, cst.Call) else node
        return self.source.code(node).split(".")[-1] in COUNTS

    # ---- variables ----------------------------------------------------------------------------

    def _name(self, node: Expression) -> str | None:
        if not isinstance(node, cst.Name):
            return None
        if node.value in self.carried.given:
            return self.named(node.value)
        if node.value in self._hoisted:
            return self._hoisted[node.value][1]
        if self._closed:
            raise Unknown
        value = self.source.definition(node)
        if value is not None and self.carried.loop in self.source.ancestors(value):
            return self._of(value)  # of this turn
        if self.source.held(self.carried.loop, node.value) is not self.source.given(node):
            return f"{node.value}.log()"
        name = self.named(node.value)
        self._hoisted[node.value] = (node, name, self._value(node, value))
        return name

    def _value(self, name: cst.Name, value: Expression | None) -> str:
        if value is None or isinstance(value, cst.Name):
            return f"{name.value}.log()"
        text = known_log(self.source, without_eps(value))
        if text is None:
            return f"{name.value}.log()"
        again = not only_computes(self.source, value)
        if again and len(self.source.other_uses(name.value, name)) > 1:
            return f"{name.value}.log()"  # a model would run twice
        self.inlined.append(value)
        return text[1:-1] if _is_wrapped(text) else text

    def hoisted_lines(self) -> Iterator[tuple[cst.CSTNode, str]]:
        """`log_K = -cost / reg`, before the first line that needs it."""
        for use, name, text in self._hoisted.values():
            line = self.source.statement(use)
            inside = self.carried.loop in self.source.ancestors(use)
            where = self.carried.loop if inside or line is None else line
            yield where, f"{name} = {text}"

    # ---- products and sums -----------------------------------------------------------------------

    def _matmul(self, node: Expression) -> str | None:
        product, call = binary(node, cst.MatrixMultiply), fn(self.source, node)
        if product is not None:
            left, right = product.left, product.right
        elif call is not None and call.name in MATMULS and len(call.rest) == 1:
            left, right = call.operand, call.rest[0].value
        else:
            return None
        for one, other, axis in ((left, right, "[:, None]"), (right, left, "[None, :]")):
            diagonal = call_of(self.source, one, "diag", "diagflat")
            if diagonal is not None:
                row = f"{receiver(self._of(diagonal.operand))}{axis}"
                rest = self._of(other)
                return f"{row} + {rest}" if one is left else f"{rest} + {row}"
        return self._summed(node, left, right)

    def _summed(self, node: Expression, left: Expression, right: Expression) -> str:
        kind = self._recorded(node)
        first, second = self._of(left), self._of(right)
        if self._holds_carried(left) is self._holds_carried(right):
            raise Unknown
        if self._holds_carried(left) and kind in ("mm", "mv"):
            return f"torch.logsumexp({receiver(first)}.unsqueeze(-1) + {second}, dim=-2)"
        if kind == "mv":
            return f"torch.logsumexp({first} + {second}, dim=-1)"
        if kind == "mm":
            return f"torch.logsumexp({receiver(first)}.unsqueeze(-1) + {second}, dim=-2)"
        raise Unknown

    def _recorded(self, node: Expression) -> str:
        """Of vectors or of matrices: as it ran; of others in the loop, as those that ran."""
        here = self.source.start(node)
        found = {o.name: o for o in self._operations() if o.name in ("mm", "mv", "bmm")}
        exact = [
            o.name
            for o in self._operations()
            if o.name in found and o.site is not None and (o.site.line, o.site.column) == here
        ]
        kinds = set(exact) or set(found)
        if len(kinds) != 1:
            raise Unknown
        return kinds.pop()

    def _operations(self) -> Iterator[OpRecord]:
        yield self.case.origin
        yield from self.case.anomaly.evidence.path
        for operand in self.case.origin.inputs:
            yield from operand.upstream

    def _arithmetic(self, node: Expression) -> str | None:
        product, quotient = binary(node, cst.Multiply), binary(node, cst.Divide)
        parts = product or quotient
        if parts is None:
            return None
        if quotient is not None and number_of(quotient.left) == 1:
            return f"-{factor(self._of(without_eps(quotient.right)))}"
        left, right = self._of(without_eps(parts.left)), self._of(without_eps(parts.right))
        return f"{left} + {right}" if product is not None else f"{left} - {factor(right)}"

    def _call(self, node: Expression) -> str | None:
        call = fn(self.source, node)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            name = node.func.attr.value
            if name in ONES:
                func = node.func.with_changes(attr=cst.Name(ONES[name]))
                return self.source.code(node.with_changes(func=func))
        if call is None or call.inplace:
            return None
        if call.name == "exp":
            return self.source.code(call.operand)
        if call.name == "where" and len(call.rest) == 2 and call.namespace is not None:
            one, other = (self._of(arg.value) for arg in call.rest)
            return f"{call.namespace}.where({self.source.code(call.operand)}, {one}, {other})"
        if call.name == "sum":
            inside = self._of(call.operand)
            if call.rest:
                return call.rebuilt("logsumexp", inside, namespace="torch")
            flat = inside if self._axes(node) == 1 else f"{receiver(inside)}.flatten()"
            return f"torch.logsumexp({flat}, dim=0)"
        return None

    def _axes(self, node: Expression) -> int | None:
        """Of what a recorded operation was given."""
        for op in self._operations():
            if op.site is None or (op.site.line, op.site.column) != self.source.start(node):
                continue
            stats = op.inputs[0].stats if op.inputs else None
            if op.name == "sum" and stats is not None:
                return len(stats.shape)
        return None

    def _part(self, node: Expression) -> str | None:
        """Chosen or rearranged elements."""
        below = below_view(self.source, node)
        if below is None:
            return None
        text = self._of(below)
        method = isinstance(node, (cst.Subscript, cst.Attribute)) or _is_method(self.source, node)
        inside = cst.parse_expression(receiver(text) if method else text)
        return self.source.code(node.deep_replace(below, inside))


def _is_method(source: Source, node: Expression) -> bool:
    call = fn(source, node)
    return call is not None and call.namespace is None


def _is_wrapped(text: str) -> bool:
    """`(-x / y)`: alone on its line it needs no parentheses."""
    parsed = cst.parse_expression(text)
    return text.startswith("(") and bool(parsed.lpar) and not isinstance(parsed, cst.Tuple)
