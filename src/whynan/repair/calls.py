"""Calls of torch functions as the user wrote them: `torch.log(x)`, `x.log()`, `F.softmax(x, 1)`."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from whynan.repair.source import Expression, Source

NAMESPACES = frozenset(
    {
        "torch", "F", "nn.functional", "torch.nn.functional", "functional", "torch.linalg",
        "torch.special", "torch.fft", "linalg", "special",
    }
)  # fmt: skip

MODULES = frozenset({"torch", "nn", "F", "math", "np", "numpy", "optim", "init"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fn:
    """One call, with its tensor apart from the other arguments."""

    source: Source
    node: cst.Call
    name: str  # without the underscore of the in-place form
    namespace: str | None  # None: a method
    operand: Expression
    rest: tuple[cst.Arg, ...]
    inplace: bool = False

    def argument(self, position: int, *keywords: str) -> Expression | None:
        """The argument after the tensor, by place or by name."""
        for arg in self.rest:
            if arg.keyword is not None and arg.keyword.value in keywords:
                return arg.value
        plain = [a for a in self.rest if a.keyword is None and not a.star]
        return plain[position].value if position < len(plain) else None

    def rebuilt(self, name: str, operand: str, *, namespace: str | None = None) -> str:
        """The same call of another function on another operand; other arguments as typed."""
        rest = ", ".join(self.source.code(a).rstrip(", \n") for a in self.rest)
        if self.namespace is None and namespace is None:
            return f"{operand}.{name}({rest})"
        home = namespace or self.namespace
        prefix = f"{home}." if home else ""
        return f"{prefix}{name}({', '.join(part for part in (operand, rest) if part)})"


def fn(source: Source, node: cst.CSTNode | None) -> Fn | None:
    """See a node as a torch call; None if it is none, or takes no tensor."""
    if not isinstance(node, cst.Call):
        return None
    args = tuple(node.args)
    if isinstance(node.func, cst.Name):
        if not source.from_torch(node.func) or not args or args[0].keyword:
            return None
        return _made(source, node, node.func.value, "", args[0].value, args[1:])
    if not isinstance(node.func, cst.Attribute):
        return None
    name, owner = node.func.attr.value, source.code(node.func.value)
    if owner in NAMESPACES or owner == source.functional() or owner == source.torch_name():
        if not args or args[0].star:
            return None
        if args[0].keyword is not None and args[0].keyword.value not in ("input", "self"):
            return None
        return _made(source, node, name, owner, args[0].value, args[1:])
    dotted = owner.replace(".", "").isidentifier()
    if owner == "self" or (dotted and owner.split(".")[0] in MODULES):
        return None  # `self.softmax(x)`, `nn.utils.clip_grad_norm_(...)`
    return _made(source, node, name, None, node.func.value, args)


def _made(
    source: Source,
    node: cst.Call,
    name: str,
    namespace: str | None,
    operand: Expression,
    rest: tuple[cst.Arg, ...],
) -> Fn:
    return Fn(
        source=source,
        node=node,
        name=name.rstrip("_"),
        namespace=namespace,
        operand=operand,
        rest=rest,
        inplace=name.endswith("_") and not name.endswith("__"),
    )


def call_of(source: Source, node: Expression, *names: str) -> Fn | None:
    """The call behind an expression, itself or through one variable, if it is one of these and its
    text would mean the same here."""
    return _named(source, (node, source.definition(node)), names)


def made_by(source: Source, node: Expression, *names: str) -> Fn | None:
    """The same, to be looked at or changed where it stands: `x = x.clamp(0)`."""
    return _named(source, (node, source.value_of(node)), names)


def _named(
    source: Source, candidates: tuple[Expression | None, ...], names: tuple[str, ...]
) -> Fn | None:
    for candidate in candidates:
        found = fn(source, candidate)
        if found is not None and found.name in names:
            return found
    return None


def number_of(node: cst.CSTNode | None) -> float | None:
    """A literal number, also with a sign."""
    if isinstance(node, (cst.Integer, cst.Float)):
        return float(node.evaluated_value)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = number_of(node.expression)
        return None if inner is None else -inner
    return None


def is_infinity(source: Source, node: cst.CSTNode) -> bool:
    """`float("-inf")`, `-torch.inf`, `-math.inf`, `-np.inf`."""
    text = source.code(node).replace("'", '"').replace(" ", "").strip("()-")
    return text in (
        'float("-inf"', 'float("inf"', 'float("-inf")', 'float("inf")', 'float("-infinity"',
        "torch.inf", "math.inf", "np.inf", "numpy.inf", "inf",
    )  # fmt: skip


def binary(
    node: cst.CSTNode | None, operator: type[cst.BaseBinaryOp]
) -> cst.BinaryOperation | None:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, operator):
        return node
    return None


def is_one(node: cst.CSTNode | None) -> bool:
    """1, `torch.ones_like(x)`."""
    func = node.func if isinstance(node, cst.Call) else None
    made = func.attr.value if isinstance(func, cst.Attribute) else ""
    return number_of(node) == 1 or made in ("ones_like", "new_ones")


def one_minus(node: cst.CSTNode | None) -> Expression | None:
    """`x` of `1 - x`."""
    difference = binary(node, cst.Subtract)
    return difference.right if difference is not None and is_one(difference.left) else None
