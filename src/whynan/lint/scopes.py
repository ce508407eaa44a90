"""What the statements of a file bind: assignments, parameters, attributes, joined branches."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import TypeGuard

from whynan.lint.libraries import OTHER, family
from whynan.lint.terms import Kind, Term, resolve
from whynan.source.trees import Function, last_word, statements

Meaning = Callable[[str], str]  # what was imported under a name
WORD = re.compile(r"[^\W\d]\w*")
NO_GRAD = ("no_grad", "inference_mode")
SCALAR_WORDS = ("float", "int", "bool", "str", "float | None", "int | None", "Optional[float]")


def targets(statement: ast.stmt) -> Iterable[ast.expr]:
    """What a statement writes to."""
    if isinstance(statement, ast.Assign):
        stack = list(statement.targets)
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        stack = [statement.target]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        stack = [i.optional_vars for i in statement.items if i.optional_vars is not None]
    else:
        return
    while stack:
        target = stack.pop()
        if isinstance(target, ast.Tuple | ast.List):
            stack.extend(target.elts)
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def merged(a: dict[str, Term], b: dict[str, Term]) -> dict[str, Term]:
    """After two ways through: a name keeps its value only if both give the same."""
    result = {}
    for name in a.keys() | b.keys():
        x, y = a.get(name), b.get(name)
        if x is y and x is not None:
            result[name] = x
        else:
            some = x or y
            assert some is not None
            kinds = {t.kind for t in (x, y) if t is not None}
            kind: Kind = kinds.pop() if len(kinds) == 1 else "?"
            result[name] = Term("merged", some.node, tuple(t for t in (x, y) if t is not None), kind=kind)  # fmt: skip
    return result


def parameters(node: Function, tensors: bool, meaning: Meaning) -> dict[str, Term]:
    found = {}
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = dict(
        zip([a.arg for a in reversed(positional)], reversed(arguments.defaults), strict=False)
    )
    defaults |= dict(zip([a.arg for a in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
    place = ast.copy_location(ast.Constant(None), node)
    for arg in [*positional, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if arg is None or arg.arg == "self":
            continue
        found[arg.arg] = Term(
            "param",
            place,
            value=arg.arg,
            kind=_parameter_kind(arg, defaults.get(arg.arg), tensors, meaning),
        )
    return found


def _parameter_kind(
    arg: ast.arg, default: ast.expr | None, tensors: bool, meaning: Meaning
) -> Kind:
    if arg.annotation is not None:
        note = arg.annotation
        words = note.id if isinstance(note, ast.Name) else ast.unparse(note)
        if any(family(meaning(word)) == OTHER for word in WORD.findall(words)):
            return "other"
        if words in SCALAR_WORDS:
            return "scalar"
        if "Tensor" in words and "list" not in words.lower() and "tuple" not in words.lower():
            return "tensor"
        return "array" if "ndarray" in words else "?"
    if isinstance(default, ast.Constant) and isinstance(default.value, int | float | str):
        return "scalar"
    return "tensor" if tensors and default is None else "?"


def item_kind(iterated: Term) -> Kind:
    target = resolve(iterated)
    if target.op == "builtin" and target.value in ("range", "enumerate"):
        return "scalar"
    return "tensor" if iterated.kind == "tensor" else "?"


def evaluating(node: ast.If) -> list[ast.stmt] | None:
    """The arm of `if self.training` in which nothing is trained."""
    test, arm = node.test, node.orelse
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, arm = test.operand, node.body
    word = last_word(test) if isinstance(test, ast.Name | ast.Attribute) else ""
    return arm if word in ("training", "is_training", "is_train") else None


def turns_off_gradients(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        if _ends_with(node.func, "set_grad_enabled"):
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and not node.args[0].value  # fmt: skip
        node = node.func
    return any(_ends_with(node, name) for name in NO_GRAD)


def _ends_with(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Name) and node.id == name
    )


def is_module(node: ast.ClassDef) -> bool:
    return any(m.name == "forward" for m in node.body if isinstance(m, Function)) and bool(node.bases)  # fmt: skip


def self_assignments(method: Function) -> Iterable[tuple[str, ast.expr | None]]:
    for node in statements(method.body):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets, value = [node.target], node.value if isinstance(node, ast.AnnAssign) else None
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            for part in parts:
                if _is_own(part):
                    yield part.attr, value if part is target else None


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    """`self.something`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def assigned_once(body: Iterable[ast.stmt]) -> dict[str, ast.expr | None]:
    """Module names with exactly one assignment in the whole module level."""
    counts: dict[str, int] = {}
    values: dict[str, ast.expr | None] = {}
    for node in statements(body, inner=False):
        for target in targets(node):
            if isinstance(target, ast.Name):
                counts[target.id] = counts.get(target.id, 0) + 1
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value if len(node.targets) == 1 else None
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            values[node.target.id] = node.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            counts[node.target.id] = 2
    return {name: value for name, value in values.items() if counts.get(name) == 1}


def assigns(node: ast.If, names: frozenset[str]) -> bool:
    """`if n == 0: n = 1` settles n."""
    return any(
        isinstance(target, ast.Name) and target.id in names
        for statement in statements(node.body)
        for target in targets(statement)
    )


def as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load()), target)  # fmt: skip
    assert isinstance(target, ast.Subscript)
    return ast.copy_location(ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load()), target)  # fmt: skip


def variable(target: ast.expr) -> str | None:
    """`x` and `self.x`, whose values are followed; no other part of an object is."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return f"{target.value.id}.{target.attr}"
    return target.id if isinstance(target, ast.Name) else None


def written_into(target: ast.expr) -> str | None:
    """The variable that an assignment to this changes: `x.numpy()[0] = 1` writes into x."""
    while isinstance(target, ast.Subscript) or variable(target) is None:
        if isinstance(target, ast.Call):
            target = target.func
        if not isinstance(target, ast.Subscript | ast.Attribute):
            return None
        target = target.value
    return variable(target)
