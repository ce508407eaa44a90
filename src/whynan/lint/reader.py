"""Python expressions to terms, with the variables known at that point of the program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from whynan.lint.calls import ClassInfo, of_builtin, of_function, of_method, of_module
from whynan.lint.helpers import Helpers
from whynan.lint.names import Scope
from whynan.lint.source import Source
from whynan.lint.spelling import CONSTANTS, KEYWORDS, KNOWN, OPERATORS, SCALAR_ATTRIBUTES
from whynan.lint.terms import SHAPE_OPS, Kind, Term, joined, names_in, resolve
from whynan.source.trees import last_word

BUILTINS = frozenset([
    "len", "int", "float", "round", "bool", "max", "min", "sum", "abs", "pow", "range",
    "enumerate", "zip",
])  # fmt: skip
CALLABLE = ("imported", "module", "instance", "class")
OWN_FORWARD = ("self", "self.forward")
NOT_VALUES = ("ndim", "dtype", "device", "is_cuda", "requires_grad", "training", "dim")


class Reader:
    """Reads one expression after the other; `env` is the walker's to change."""

    def __init__(self, source: Source, scope: Scope, visit: Callable[[Term], None]) -> None:
        self.source = source
        self.scope = scope
        self.visit = visit
        self.env: dict[str, Term] = {}
        self.globals: Callable[[str], Term | None] = lambda name: None
        self.helpers: Helpers | None = None
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
        if isinstance(function, ast.Lambda):
            return self._at_once(function, node)
        callee = self._callee(function)
        args = self._arguments(node)
        own = self.own_class
        if own is not None and own.returned is not None and _spelled(function) in OWN_FORWARD:
            return own.returned
        kw = {KEYWORDS.get(k.arg, k.arg) if k.arg else "**": self.read(k.value) for k in node.keywords}  # fmt: skip
        if callee is not None:
            target = resolve(callee)
            if target.op == "imported":
                return of_function(node, str(target.value), args, kw)
            if target.op in ("module", "instance"):
                return of_module(self.classes, target, node, args)
            if target.op == "class":
                return Term("instance", node, args, kw, value=target.value)
        if isinstance(function, ast.Name) and callee is None and self._is_builtin(function.id):
            return of_builtin(node, function.id, args, kw)
        if isinstance(function, ast.Attribute) and callee is not None and callee.op == "receiver":
            return of_method(node, function.attr, callee.args[0], args, kw)
        given = self.helpers.gives(node) if self.helpers is not None and callee is None else None
        if given is not None:
            return given
        return Term("unknown", node, (*args, *kw.values()), value=last_word(function))

    def _at_once(self, function: ast.Lambda, node: ast.Call) -> Term:
        """`(lambda z: z.exp())(x)`."""
        given = [self.read(a) for a in node.args]
        before = dict(self.env)
        self.env.update(zip([a.arg for a in function.args.args], given, strict=False))
        term = self.read(function.body)
        self.env = before
        return term

    def _is_builtin(self, name: str) -> bool:
        return name in BUILTINS and self.scope.owner(name) is None

    def _arguments(self, node: ast.Call) -> tuple[Term, ...]:
        """In `where(c, a, b)` the condition has been looked at when a and b are read."""
        if last_word(node.func) != "where" or len(node.args) != 3:
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
            if chain is not None and resolve(chain).op in CALLABLE:
                return chain
            receiver = self.read(function.value)
            return Term("receiver", function, (receiver,))
        return self.read(function)


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


def _spelled(function: ast.expr) -> str:
    """`self.forward`, and no more than one dot."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


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
