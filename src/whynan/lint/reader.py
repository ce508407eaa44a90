"""Python expressions to terms, with the variables known at that point of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from whynan.lint.libraries import OTHER, family
from whynan.lint.names import Scope
from whynan.lint.receivers import is_operand
from whynan.lint.source import Source
from whynan.lint.spelling import (
    CONSTANTS,
    KEYWORDS,
    KNOWN,
    OPERATORS,
    SCALAR_ATTRIBUTES,
    SCALAR_CALLS,
    SCALAR_METHODS,
    TENSOR_METHODS,
    TRANSPARENT,
    operation,
    split,
)
from whynan.lint.terms import SHAPE_OPS, Kind, Term, names_in, resolve
from whynan.ops.table import MODULES

BUILTINS = frozenset([
    "len", "int", "float", "round", "bool", "max", "min", "sum", "abs", "pow", "range",
    "enumerate", "zip",
])  # fmt: skip
NOT_VALUES = ("ndim", "dtype", "device", "is_cuda", "requires_grad", "training", "dim")
LOGGERS = ("log", "logger", "accelerator", "tracker", "wandb", "self", "trainer", "writer", "run")


@dataclass
class ClassInfo:
    """What is known of a class in this file."""

    name: str
    is_module: bool = False
    attributes: dict[str, Term] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)  # those that are the same for life
    returned: Term | None = None  # what `forward` gives, when every return agrees


class Reader:
    """Reads one expression after the other; `env` is the walker's to change."""

    def __init__(self, source: Source, scope: Scope, visit: Callable[[Term], None]) -> None:
        self.source = source
        self.scope = scope
        self.visit = visit
        self.env: dict[str, Term] = {}
        self.globals: Callable[[str], Term | None] = lambda name: None
        self.classes: dict[str, ClassInfo] = {}
        self.own_class: ClassInfo | None = None
        self.tested: frozenset[str] = frozenset()
        self.in_text = 0  # reading what an f-string shows

    def read(self, node: ast.expr) -> Term:
        method = _READERS.get(type(node))
        term = method(self, node) if method is not None else self._other(node)
        self.visit(term)
        return term

    # Names and constants

    def _constant(self, node: ast.Constant) -> Term:
        value = node.value if isinstance(node.value, int | float | str | bool) else None
        return Term("const", node, value=value, kind="scalar")

    def _name(self, node: ast.Name) -> Term:
        local = self.env.get(node.id)
        if local is None:
            if full := self.scope.meaning(node.id):
                return _imported(node, full)
            owner = self.scope.owner(node.id)
            if owner is None or owner.parent is None:
                local = self.globals(node.id)
        if local is None:
            return Term("name", node, value=node.id)
        return Term("name", node, value=node.id, binding=local, kind=local.kind)

    def _attribute(self, node: ast.Attribute) -> Term:
        if (full := self._qualified(node)) != "":
            return _imported(node, full)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            spelled = f"self.{node.attr}"
            known = self.env.get(spelled)
            if known is None and self.own_class is not None:
                known = self.own_class.attributes.get(node.attr)
            return Term(
                "name", node, value=spelled, binding=known, kind=known.kind if known else "?"
            )
        base = self.read(node.value)
        if (module := resolve(base)).op == "imported":  # `np = jax.numpy`
            return _imported(node, f"{module.value}.{node.attr}")
        if base.op == "name" and (known := self.env.get(f"{base.value}.{node.attr}")) is not None:
            return Term("name", node, value=f"{base.value}.{node.attr}", binding=known, kind=known.kind)  # fmt: skip
        kind: Kind = "scalar" if node.attr in SCALAR_ATTRIBUTES else "?"
        if node.attr in ("T", "mT", "data", "grad", "real", "imag", "values"):
            kind = base.kind
        return Term("attr", node, (base,), value=node.attr, kind=kind)

    def _qualified(self, node: ast.expr) -> str:
        """The full name of an imported thing, '' when the expression is not one."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.env:
            return ""
        full = self.scope.meaning(node.id)
        return ".".join([full, *reversed(parts)]) if full else ""

    # Operators

    def _binary(self, node: ast.BinOp) -> Term:
        a, b = self.read(node.left), self.read(node.right)
        op = OPERATORS[type(node.op).__name__]
        return Term(op, node, (a, b), form="operator", kind=joined(a, b))

    def _unary(self, node: ast.UnaryOp) -> Term:
        inner = self.read(node.operand)
        if isinstance(node.op, ast.USub):
            if inner.op == "const" and isinstance(inner.value, int | float):
                return Term("const", node, value=-inner.value, kind="scalar")
            return Term("neg", node, (inner,), form="operator", kind=inner.kind)
        if isinstance(node.op, ast.UAdd):
            return inner
        op = "not" if isinstance(node.op, ast.Not) else "invert"
        return Term(op, node, (inner,), kind=inner.kind)

    def _compare(self, node: ast.Compare) -> Term:
        parts = (self.read(node.left), *(self.read(c) for c in node.comparators))
        value = type(node.ops[0]).__name__ if len(node.ops) == 1 else None
        return Term("compare", node, parts, value=value, kind=joined(*parts))

    def _boolean(self, node: ast.BoolOp) -> Term:
        before = self.tested
        parts = []
        for value in node.values:
            parts.append(self.read(value))
            self.tested |= spelled_in(value)
        self.tested = before
        return Term("boolop", node, tuple(parts))

    def _conditional(self, node: ast.IfExp) -> Term:
        test = self.read(node.test)
        before = self.tested
        self.tested = before | spelled_in(node.test)
        body, other = self.read(node.body), self.read(node.orelse)
        self.tested = before
        return Term("ifexp", node, (test, body, other), kind=joined(body, other))

    def _subscript(self, node: ast.Subscript) -> Term:
        base = self.read(node.value)
        key = self.read(node.slice)
        return Term("index", node, (base, key), kind=base.kind)

    def _sequence(self, node: ast.Tuple | ast.List) -> Term:
        return Term("tuple", node, tuple(self.read(e) for e in node.elts))

    def _walrus(self, node: ast.NamedExpr) -> Term:
        value = self.read(node.value)
        self.env[node.target.id] = value
        return value

    def _scoped(self, node: ast.expr) -> Term:
        """Comprehensions and lambdas: their own variables are unknown inside."""
        before = dict(self.env)
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                self.env[child.id] = Term("unknown", child)
            elif isinstance(child, ast.arg):
                self.env[child.arg] = Term("param", node, value=child.arg)
        parts = self._parts(node)
        self.env = before
        return Term("unknown", node, parts)

    def _formatted(self, node: ast.JoinedStr) -> Term:
        self.in_text += 1
        term = self._other(node)
        self.in_text -= 1
        return term

    def _other(self, node: ast.expr) -> Term:
        return Term("unknown", node, self._parts(node))

    def _parts(self, node: ast.AST) -> tuple[Term, ...]:
        found: list[Term] = []
        before = self.tested
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.comprehension):
                found.append(self.read(child.iter))
                for test in child.ifs:
                    found.append(self.read(test))
                    self.tested |= spelled_in(test)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found.append(self.read(child))
        self.tested = before
        return tuple(found)

    # Calls

    def _call(self, node: ast.Call) -> Term:
        term = self._called(node)
        if term.op not in KNOWN and term.op not in SHAPE_OPS:
            self._filled(term.children)
        elif "out" in term.kw:
            self._filled((term.kw["out"],))
        return term

    def _called(self, node: ast.Call) -> Term:
        function = node.func
        callee = self._callee(function)
        args = self._arguments(node)
        kw = {KEYWORDS.get(k.arg, k.arg) if k.arg else "**": self.read(k.value) for k in node.keywords}  # fmt: skip
        if callee is not None:
            target = resolve(callee)
            if target.op == "imported":
                return self._function(node, str(target.value), args, kw)
            if target.op in ("module", "instance"):
                return self.apply(target, node, args)
            if target.op == "class":
                return Term("instance", node, args, kw, value=target.value)
        if isinstance(function, ast.Name) and callee is None and self._is_builtin(function.id):
            return self._builtin(node, function.id, args, kw)
        if isinstance(function, ast.Attribute) and callee is not None and callee.op == "receiver":
            return self._method(node, function.attr, callee.args[0], args, kw)
        name = (
            function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
        )
        return Term("unknown", node, (*args, *kw.values()), value=name)

    def _is_builtin(self, name: str) -> bool:
        return name in BUILTINS and self.scope.owner(name) is None

    def _arguments(self, node: ast.Call) -> tuple[Term, ...]:
        """In `where(c, a, b)` the condition has been looked at when a and b are read."""
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name != "where" or len(node.args) != 3:
            return tuple(self.read(a) for a in node.args)
        condition = self.read(node.args[0])
        before = self.tested
        self.tested = before | spelled_in(node.args[0]) | names_in(resolve(condition))
        rest = tuple(self.read(a) for a in node.args[1:])
        self.tested = before
        return (condition, *rest)

    def _filled(self, parts: Iterable[Term]) -> None:
        """Memory handed to something unknown may have been written to."""
        for part in parts:
            if part.op == "name" and part.binding is not None and part.binding.op in ("empty", "Tensor"):  # fmt: skip
                self.env[str(part.value)] = Term("patched", part.node, kind=part.kind)

    def _callee(self, function: ast.expr) -> Term | None:
        """What is called: something imported, a known module or class, or a method's receiver."""
        if isinstance(function, ast.Name):
            if function.id in self.classes and function.id not in self.env:
                return Term("class", function, value=function.id)
            term = self._name(function)
            return term if term.op != "name" or term.binding is not None else None
        if isinstance(function, ast.Attribute):
            chain = self._attribute(function) if _root(function) is not None else None
            if chain is not None and resolve(chain).op in (
                "imported",
                "module",
                "instance",
                "class",
            ):
                return chain
            receiver = self.read(function.value)
            return Term("receiver", function, (receiver,))
        return self.read(function)

    def _function(
        self, node: ast.Call, name: str, args: tuple[Term, ...], kw: dict[str, Term]
    ) -> Term:
        last = name.rsplit(".", 1)[-1]
        if name.startswith("torch.nn.") and last[:1].isupper() and "functional" not in name:
            return Term("module", node, args, kw, value=last)
        library, op = split(name)
        if not library and name.startswith("torch.") and last[:1].isupper():
            library, op = "torch", last
        if not library:
            other: Kind = "other" if family(name) == OTHER else "?"
            return Term("unknown", node, (*args, *kw.values()), value=last, kind=other)
        if not args and "input" in kw:
            args = (kw.pop("input"),)
        if library != "numpy" and last == "Tensor":
            op = "Tensor"
        kind: Kind = {"torch": "tensor", "numpy": "array"}.get(library, "scalar")  # type: ignore[assignment]  # literals by construction
        if op in ("finfo", "iinfo", "is_tensor", "numel", "device"):
            kind = "scalar"
        if library == "numpy" and args and all(a.kind == "scalar" for a in args):
            kind = "scalar"
        if library == "torch" and op in ("tensor", "as_tensor", "full") and args and args[0].kind == "scalar":  # fmt: skip
            kind = "tensor"
        return Term(op, node, args, kw, lib=library, form="call", kind=kind)

    def _builtin(
        self, node: ast.Call, name: str, args: tuple[Term, ...], kw: dict[str, Term]
    ) -> Term:
        if name == "float" and args and args[0].op == "const" and isinstance(args[0].value, str):
            try:
                return Term("const", node, value=float(args[0].value), kind="scalar")
            except ValueError:
                pass
        kind: Kind = "scalar" if name in SCALAR_CALLS else joined(*args)
        if name in ("max", "min") and len(args) == 2:
            return Term("maximum" if name == "max" else "minimum", node, args, form="builtin", kind=kind)  # fmt: skip
        if name == "abs" and len(args) == 1:
            return Term("abs", node, args, form="call", kind=kind)
        return Term("builtin", node, args, kw, value=name, kind=kind)

    def _method(
        self, node: ast.Call, name: str, receiver: Term, args: tuple[Term, ...], kw: dict[str, Term]
    ) -> Term:
        op = operation(name)
        if name in SCALAR_METHODS:
            return Term(f".{name}", node, (receiver, *args), kw, form="method", kind="scalar")
        known = op in KNOWN or op in SHAPE_OPS
        if op == "log" and (args or kw or str(receiver.value).rsplit(".", 1)[-1] in LOGGERS):
            known = False
        if known and not is_operand(op, receiver, args, kw):
            known = False
        if not known or resolve(receiver).op in ("imported", "module", "instance"):
            unknown: Kind = "tensor" if name in TENSOR_METHODS else "?"
            kind = "other" if receiver.kind == "other" else unknown
            return Term(f".{name}", node, (receiver, *args), kw, form="method", kind=kind)
        if op == "where" and name == "where":  # x.where(condition, other)
            args = (args[0], receiver, *args[1:]) if args else (receiver,)
            return Term("where", node, args, kw, lib="torch", form="method", kind=receiver.kind)
        kind = receiver.kind
        if kind == "?" and op in TENSOR_METHODS:
            kind = "tensor"
        if name == "numpy":
            kind = "array"
        if op in ("rand", "exponential") and name in ("uniform_", "exponential_"):
            return Term(op, node, (receiver, *args), kw, lib="torch", form="method", kind="tensor")
        return Term(op, node, (receiver, *args), kw, form="method", kind=kind)

    def apply(self, target: Term, node: ast.Call, args: tuple[Term, ...]) -> Term:
        """Call a module: `nn.Sequential` in order, a class of this file through its `forward`."""
        if target.op == "instance":
            info = self.classes.get(str(target.value))
            if info is not None and info.returned is not None:
                return info.returned
            return Term("layer", node, args, kind="tensor" if info and info.is_module else "?")
        if target.value == "Sequential":
            value = Term("layer", node, args, kind="tensor")
            for part in target.args:
                inner = resolve(part)
                if inner.op == "module" and inner.value in TRANSPARENT:
                    continue
                if inner.op in ("module", "instance"):
                    value = self.apply(inner, node, (value,))
                else:
                    value = Term("layer", node, (value,), kind="tensor")
            return value
        op = MODULES.get(str(target.value), "layer")
        return Term(op, node, args, dict(target.kw), lib="torch", form="module", kind="tensor")


def joined(*parts: Term) -> Kind:
    """The kind of what arithmetic on these gives."""
    kinds = {p.kind for p in parts}
    if "other" in kinds:
        return "other"
    if "tensor" in kinds:
        return "tensor"
    if "array" in kinds:
        return "array"
    return "scalar" if kinds == {"scalar"} else "?"


def spelled_in(node: ast.AST) -> frozenset[str]:
    """Names and attributes whose values a test looks at; `is None`, types and shapes are not values."""
    found: set[str] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is | ast.IsNot):
            continue
        if isinstance(part, ast.Attribute) and part.attr in NOT_VALUES:
            continue
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") in ("isinstance", "hasattr"):
            continue
        stack.extend(ast.iter_child_nodes(part))
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            found.add(f"{part.value.id}.{part.attr}")
    return frozenset(found - {"self", "torch", "np", "F", "nn", "math", "numpy"})


def _imported(node: ast.expr, full: str) -> Term:
    if full in CONSTANTS:
        return Term("const", node, value=CONSTANTS[full], kind="scalar")
    return Term("imported", node, value=full)


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


_READERS: dict[type, Callable[[Reader, Any], Term]] = {
    ast.Constant: Reader._constant,
    ast.Name: Reader._name,
    ast.Attribute: Reader._attribute,
    ast.BinOp: Reader._binary,
    ast.UnaryOp: Reader._unary,
    ast.Compare: Reader._compare,
    ast.BoolOp: Reader._boolean,
    ast.IfExp: Reader._conditional,
    ast.Subscript: Reader._subscript,
    ast.Tuple: Reader._sequence,
    ast.List: Reader._sequence,
    ast.NamedExpr: Reader._walrus,
    ast.JoinedStr: Reader._formatted,
    ast.Call: Reader._call,
    ast.Lambda: Reader._scoped,
    ast.ListComp: Reader._scoped,
    ast.SetComp: Reader._scoped,
    ast.DictComp: Reader._scoped,
    ast.GeneratorExp: Reader._scoped,
}
