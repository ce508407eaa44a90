"""Whether a number that a program writes stands in its source, itself or by a name for it."""

from __future__ import annotations

import ast
import linecache
import math
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType

from whynan.model import Site
from whynan.positions import written_at

# float("inf"), math.inf, -torch.inf, NEG_INF
LITERAL = re.compile(r"(?<![a-z])(inf|nan|infty|infinity)(?![a-z])", re.IGNORECASE)
# The same, but for functions such as `nan_to_num`.
WRITTEN = re.compile(r"(?<![a-z_])(inf|nan|infty|infinity)(?![a-z_])", re.IGNORECASE)


CONVERSIONS = frozenset({"float", "tensor", "as_tensor", "asarray", "array"})


def names_nonfinite(site: Site) -> bool:
    """Of `x[0] = fill`: whether the file says that `fill` is an infinity or NaN."""
    if LITERAL.search(written_at(site)):
        return True
    return any(_stands_for(value, site.file) for value in _written(site))


def mentions_nonfinite(site: Site) -> bool:
    """Whether the number stands in the source, there or under a name that is used there."""
    text = written_at(site).partition("#")[0]
    given = _given(site.file)
    return bool(WRITTEN.search(text)) or any(
        _stands_for(value, site.file)
        for name in re.findall(r"[^\W\d]\w*", text)
        for value in given.get(name, ())
    )


def _stands_for(value: ast.expr, file: str) -> bool:
    """Itself, or by names for names: self.fill = fill; def __init__(self, fill=LOWEST)."""
    given, seen = _given(file), set[str]()
    pending = [value]
    while pending:
        value = pending.pop()
        if LITERAL.search(ast.unparse(value)):
            return True
        for name in _references(value):
            if _is_imported(name, file):
                return True
            if _last(name) not in seen:  # the same name may be handed on at a hundred places
                seen.add(_last(name))
                pending += given.get(_last(name), ())
    return False


def _references(value: ast.expr) -> Iterator[ast.expr]:
    """The names that the value may be: nothing is computed with them."""
    if isinstance(value, ast.UnaryOp):
        yield from _references(value.operand)
    elif isinstance(value, ast.IfExp):
        yield from _references(value.body)
        yield from _references(value.orelse)
    elif isinstance(value, ast.Call) and _last(value.func) in CONVERSIONS and value.args:
        yield from _references(value.args[0])
    elif _last(value):
        yield value


def _last(value: ast.expr) -> str:
    """`neg` of `neg`, `self.neg` and `config["neg"]`."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return _key(value.slice)
    return ""


def _key(constant: ast.Constant) -> str:
    return constant.value if isinstance(constant.value, str) else ""


def _is_imported(value: ast.expr, file: str) -> bool:
    """Whether it is a constant of another module. Attributes of anything but modules and classes
    might be code."""
    names: list[str] = []
    while isinstance(value, ast.Attribute):
        names.insert(0, value.attr)
        value = value.value
    if not isinstance(value, ast.Name) or value.id not in _imports(file):
        return False
    found: object = _module_of(file)
    for name in (value.id, *names):
        if not isinstance(found, (ModuleType, type)):
            return False
        found = vars(found).get(name)
    return isinstance(found, float) and not math.isfinite(found)


def _module_of(file: str) -> ModuleType | None:
    return next((m for m in list(sys.modules.values()) if vars(m).get("__file__") == file), None)


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _written(site: Site) -> Iterator[ast.expr]:
    """A call; of `x[0] = fill`, of which the interpreter's position is `x[0]`, `fill`."""
    expression = ast.parse(f"({site.expression or 0}\n)", mode="eval").body
    if isinstance(expression, ast.Call):
        yield expression
    for node in ast.walk(_tree(site.file)):
        if isinstance(node, ast.Assign) and node.lineno <= site.line <= (node.end_lineno or 0):
            for target in node.targets:
                if (target.lineno, target.end_lineno) == (site.line, site.end_line):
                    yield node.value


@lru_cache(maxsize=64)
def _imports(file: str) -> frozenset[str]:
    nodes = [n for n in ast.walk(_tree(file)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [alias.asname or alias.name.partition(".")[0] for n in nodes for alias in n.names]
    return frozenset(names)


@lru_cache(maxsize=64)
def _given(file: str) -> dict[str, list[ast.expr]]:
    """What the file gives to each name: by assignment, as a default, by keyword, in a dict."""
    given: dict[str, list[ast.expr]] = {}
    for name, value in _bindings(_tree(file)):
        if name:
            given.setdefault(name, []).append(value)
    return given


def _bindings(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _unpacked(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield _last(node.target), node.value
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield _key(key), value
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            for name, default in zip(reversed(positional), reversed(node.defaults), strict=False):
                yield name.arg, default
            for name, kw_default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                if kw_default is not None:
                    yield name.arg, kw_default


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    pair = (target, value)
    if all(isinstance(side, ast.Tuple | ast.List) for side in pair):
        for one, its in zip(target.elts, value.elts, strict=False):  # type: ignore[attr-defined]  # both have them
            yield from _unpacked(one, its)
    else:
        yield _last(target), value
