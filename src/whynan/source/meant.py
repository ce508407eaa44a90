"""Whether an infinity or NaN that a program writes stands in its source, itself or by a name."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType

from whynan.model import Site
from whynan.source.bindings import place
from whynan.source.names import Names, names_of
from whynan.source.positions import is_at, node_at, written_at
from whynan.source.trees import statement_at, statements, tree_of

# float("inf"), math.inf, -torch.inf, NEG_INF
LITERAL = re.compile(r"(?<![a-z])(inf|nan|infty|infinity)(?![a-z]|_to_num)", re.IGNORECASE)
# The same, but for functions such as `nan_to_num`.
WRITTEN = re.compile(r"(?<![a-z_])(inf|nan|infty|infinity)(?![a-z_])", re.IGNORECASE)
CONVERSIONS = frozenset({"float", "tensor", "as_tensor", "asarray", "array"})
Reference = ast.Name | ast.Attribute | ast.Subscript


def names_nonfinite(site: Site) -> bool:
    """Of `x[0] = fill`: whether the file says that `fill` is an infinity or NaN."""
    if LITERAL.search(written_at(site)):
        return True
    node = node_at(site)
    called = [node] if isinstance(node, ast.Call) else []
    return any(_stands_for(value, site.file) for value in (*called, *_assigned(site)))


def mentions_nonfinite(site: Site) -> bool:
    """Whether the number stands in the source, there or under a name that is used there."""
    if WRITTEN.search(written_at(site).partition("#")[0]):
        return True
    tree = tree_of(site.file)
    there = node_at(site) or statement_at(tree, site.line, inner=True) or tree
    parts = [part for node in (there, *_assigned(site)) for part in ast.walk(node)]
    used = [part for part in parts if isinstance(part, Reference)]
    names = names_of(tree)
    return any(
        _is_constant_elsewhere(name, names, site.file)
        or any(_stands_for(value, site.file) for value in _given_to(name, names))
        for name in used
    )


def is_assigned(site: Site) -> bool:
    """Whether something is put in there: `x[0] = fill`, not `x[0].fill_(fill)`."""
    return any(True for _ in _assigned(site))


def _assigned(site: Site) -> Iterator[ast.expr]:
    """Of `x[0] = fill`, of which the interpreter's position is `x[0]`, `fill`."""
    for node in statements(tree_of(site.file).body):
        if isinstance(node, ast.Assign) and node.lineno <= site.line <= (node.end_lineno or 0):
            for target in node.targets:
                if is_at(target, site):
                    yield node.value


def _stands_for(value: ast.expr, file: str) -> bool:
    """Itself, or by names for names: self.fill = fill; def __init__(self, fill=LOWEST)."""
    names, seen = names_of(tree_of(file)), set[ast.expr]()
    pending = [value]
    while pending:
        value = pending.pop()
        if value in seen:  # the same name may be handed on at a hundred places
            continue
        seen.add(value)
        if LITERAL.search(ast.unparse(value)):
            return True
        for reference in _references(value):
            if _is_constant_elsewhere(reference, names, file):
                return True
            pending += _given_to(reference, names)
    return False


def _references(value: ast.expr) -> Iterator[Reference]:
    """The names that the value may be: nothing is computed with them."""
    if isinstance(value, ast.UnaryOp):
        yield from _references(value.operand)
    elif isinstance(value, ast.IfExp):
        yield from _references(value.body)
        yield from _references(value.orelse)
    elif isinstance(value, ast.Call) and _last(value.func) in CONVERSIONS and value.args:
        yield from _references(value.args[0])
    elif isinstance(value, Reference):
        yield value


def _given_to(reference: Reference, names: Names) -> list[ast.expr]:
    """What it certainly got, on whatever way; else all that the file gives to one of that name."""
    binding = names.given(reference)
    sources = binding.sources if binding is not None else []
    if sources and all(b.how == "is" for b in sources):
        return [b.value for b in sources if b.value is not None]
    return _ever_given(names).get(_last(reference), [])


def _is_constant_elsewhere(reference: Reference, names: Names, file: str) -> bool:
    """Whether it is a number of another module. Attributes of anything but modules and classes
    might be code."""
    path = (place(reference) or "").split(".")
    root: ast.expr = reference
    while isinstance(root, ast.Attribute):
        root = root.value
    binding = names.given(root)
    if binding is None or not any(b.imported for b in binding.sources):
        return False
    found: object = _module_of(file)
    for name in path:
        if not isinstance(found, (ModuleType, type)):
            return False
        found = vars(found).get(name)
    return isinstance(found, float) and not math.isfinite(found)


def _module_of(file: str) -> ModuleType | None:
    return next((m for m in list(sys.modules.values()) if vars(m).get("__file__") == file), None)


@lru_cache(maxsize=16)
def _ever_given(names: Names) -> dict[str, list[ast.expr]]:
    """What a file gives to each name: by assignment, as a default, by keyword, in a dict."""
    given: dict[str, list[ast.expr]] = {}
    for binding in names.bindings.values():
        if binding.how in ("is", "parameter") and binding.value is not None:
            given.setdefault(_last(binding.node), []).append(binding.value)
    for node in ast.walk(names.module.node):
        if isinstance(node, ast.keyword) and node.arg is not None:
            given.setdefault(node.arg, []).append(node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    given.setdefault(key.value, []).append(value)
    return given


def _last(node: ast.AST) -> str:
    """`neg` of `neg`, `self.neg` and `config["neg"]`."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return key if isinstance(key, str) else ""
    found = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    return found if isinstance(found, str) else ""
