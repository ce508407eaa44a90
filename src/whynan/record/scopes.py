"""A function of the program's as source: what it does, what it calls, what its caller gave it."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from whynan.model import Site
from whynan.positions import site_at
from whynan.record.holders import place, root
from whynan.record.sites import USER, kind_of_file

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_Named = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class Scope:
    """A function, or the top level of a file."""

    function: Function
    tree: ast.Module
    names: Mapping[str, Any]  # its globals as they are now

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of it, without the functions and classes that are defined in it."""
        found: list[ast.AST] = []
        body = self.function.body
        waiting: list[ast.AST] = list(body) if isinstance(body, list) else [body]
        while waiting:
            node = waiting.pop(0)
            found.append(node)
            if not isinstance(node, _Named | ast.ClassDef):
                waiting += ast.iter_child_nodes(node)
        return found

    @cached_property
    def parameters(self) -> list[str]:
        if isinstance(self.function, ast.Module):
            return []
        taken = self.function.args
        return [a.arg for a in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]

    @cached_property
    def mentioned(self) -> set[str]:
        return {n.id for n in self.nodes if isinstance(n, ast.Name)}

    @cached_property
    def locals(self) -> set[str]:
        """The names that are its own."""
        if isinstance(self.function, ast.Module):
            return set()
        shared = {n for node in self.nodes if isinstance(node, ast.Global) for n in node.names}
        names = [n for n in self.nodes if isinstance(n, ast.Name)]
        written = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        return (written - shared) | set(self.parameters)

    def called(self, call: ast.Call) -> str:
        """The function's real name, also where the program imported it by another one."""
        func = call.func
        if isinstance(func, ast.Attribute):
            return func.attr
        name = func.id if isinstance(func, ast.Name) else ""
        meant = self.names.get(name)
        if isinstance(meant, FunctionType | BuiltinFunctionType):
            return meant.__name__
        return _Index.of(self.tree).imported.get(name, name)

    def callee(self, call: ast.Call) -> Scope | None:
        """The function of the program's that this calls, as far as the source and globals tell."""
        meant = self._object(call.func)
        if isinstance(meant, MethodType | staticmethod | classmethod):
            meant = meant.__func__
        if isinstance(meant, FunctionType):
            meant = inspect.unwrap(meant)
        if meant is not None:
            return scope_of(meant) if isinstance(meant, FunctionType) else None
        named = _Index.of(self.tree).functions.get(self.called(call))
        return Scope(named, self.tree, self.names) if named is not None else None

    def meaning(self, name: str) -> Any:
        """What a name that is not the function's own stands for."""
        known = self.names.get(name, getattr(builtins, name, None))
        return None if name in self.locals else known

    def _object(self, node: ast.expr) -> Any:
        """What a name stands for: a global, or a class's part if a local is certainly of it."""
        if isinstance(node, ast.Attribute):
            base = self._object(node.value)
            return None if base is None else inspect.getattr_static(base, node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        if node.id not in self.locals:
            return self.meaning(node.id)
        made = [n.value for n in self.nodes if isinstance(n, ast.Assign) and _gives(n, node.id)]
        func = made[0].func if len(made) == 1 and isinstance(made[0], ast.Call) else None
        by = place(func) if func is not None else None
        if func is None or by is None or root(by) in self.locals:
            return None
        kind = self._object(func)
        return kind if isinstance(kind, type) else None

    def bound(self, call: ast.Call) -> list[tuple[str, ast.expr]]:
        """Which of this function's parameters a call of it gives what."""
        names = self.parameters
        given = list(call.args)
        if isinstance(call.func, ast.Attribute) and self.is_method:
            given.insert(0, call.func.value)
        if any(isinstance(a, ast.Starred) for a in given):
            given = []
        named = [(k.arg, k.value) for k in call.keywords if k.arg in names]
        return [*zip(names, given, strict=False), *((n, v) for n, v in named if n is not None)]

    @cached_property
    def is_method(self) -> bool:
        decorators = map(place, getattr(self.function, "decorator_list", ()))
        return self.function in _Index.of(self.tree).methods and "staticmethod" not in decorators


class _Index:
    """The functions of a file, and the names it has for what it imports."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self.functions: dict[str, Function] = {
            t.id: n.value
            for n in nodes
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        self.functions |= {n.name: n for n in reversed(nodes) if isinstance(n, _Named)}
        self.methods = {m for n in nodes if isinstance(n, ast.ClassDef) for m in n.body}
        lines = [n for n in nodes if isinstance(n, ast.ImportFrom)]
        self.imported = {a.asname: a.name for line in lines for a in line.names if a.asname}

    @staticmethod
    @lru_cache(maxsize=64)
    def of(tree: ast.Module) -> _Index:
        return _Index(tree)


def scope_of(function: FunctionType) -> Scope | None:
    """The source of a function, if it is the program's own."""
    code = function.__code__
    tree = tree_of(code.co_filename) if kind_of_file(code.co_filename) == USER else None
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, _Named | ast.Lambda):
            decorators = getattr(node, "decorator_list", ())
            begin = min([node.lineno, *(d.lineno for d in decorators)])
            if begin == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name:
                return Scope(node, tree, function.__globals__)
    return None


def running(code: CodeType, lasti: int, names: Mapping[str, Any]) -> tuple[Scope, ast.AST] | None:
    """The function that runs there, and its expression (else its statement) at that place."""
    site = site_at(code, lasti)
    tree = tree_of(site.file)
    if tree is None:
        return None
    above = _innermost(tree, site)
    if above[0] is tree:
        return None
    function = next((n for n in above if isinstance(n, Function)), tree)
    return Scope(function, tree, names), _asked_for_more(above[0])


def _asked_for_more(node: ast.AST) -> ast.AST:
    """What a loop runs over: the interpreter is at the whole loop while that makes a value."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return node.generators[0].iter
    return node


def _gives(node: ast.Assign, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for t in node.targets for n in ast.walk(t))


def _innermost(tree: ast.Module, site: Site) -> list[ast.AST]:
    """The reading expression at that place, else the statement; then what is around it, outwards."""
    found: list[ast.AST] = [tree]

    def visit(node: ast.AST, above: list[ast.AST]) -> None:
        nonlocal found
        here = [node, *above]
        if isinstance(node, ast.expr) and _stands_at(node, site):
            if not isinstance(found[0], ast.Call):
                found = here
        elif isinstance(node, ast.stmt) and not isinstance(found[0], ast.expr):
            is_around = node.lineno <= site.line <= (node.end_lineno or node.lineno)
            found = here if is_around else found
        for child in ast.iter_child_nodes(node):
            visit(child, here)

    visit(tree, [])
    return found


def _stands_at(node: ast.expr, site: Site) -> bool:
    """Of a method's call over several lines, the interpreter's place begins at the method."""
    if node.end_lineno != site.end_line:
        return False
    begin = (node.lineno, _characters(site, node.lineno, node.col_offset))
    end = _characters(site, site.end_line, node.end_col_offset or 0)
    if end != site.end_column or site.column is None:
        return False
    is_spread = isinstance(node, ast.Call) and node.lineno < site.line
    return begin == (site.line, site.column) or is_spread


def _characters(site: Site, line: int, offset: int) -> int:
    return len(linecache.getline(site.file, line).encode()[:offset].decode())
