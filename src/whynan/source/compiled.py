"""Some statements of a function or module, compiled as a function of the names that they need."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType


class CannotCompile(Exception):
    """Compiled apart, it would not mean the same."""


def compiled(
    code: CodeType, body: list[ast.stmt], parameters: tuple[str, ...], declared: Sequence[str]
) -> CodeType:
    """A function of the same name, file and lines; `declared` are the module's variables. One turn of a
    loop, for `break` and `continue`."""
    if any(isinstance(n, ast.Attribute) and _is_mangled(n.attr) for s in body for n in ast.walk(s)):
        raise CannotCompile
    mentioned = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
    once = ast.For(
        target=ast.Name(id="_", ctx=ast.Store()),
        iter=ast.Tuple(elts=[ast.Constant(value=0)], ctx=ast.Load()), body=body, orelse=[],
    )  # fmt: skip
    outer: list[ast.stmt] = [ast.Global(names=[*declared])] if declared else []
    arguments = _arguments(*parameters)
    function = ast.FunctionDef(
        name=code.co_name, args=arguments, body=[*outer, once], decorator_list=[]
    )
    around: ast.stmt = function
    if "super" in mentioned or "__class__" in mentioned:
        cell = _arguments("__class__")
        around = ast.FunctionDef(name="_", args=cell, body=[function], decorator_list=[])
    at_first = ast.copy_location(ast.Pass(), body[0])
    for node in (once, once.target, once.iter, *once.iter.elts, *outer):  # type: ignore[attr-defined]  # made above
        ast.copy_location(node, at_first)
    for node in (function, around, *arguments.args):
        node.lineno = node.end_lineno = code.co_firstlineno  # type: ignore[attr-defined]  # set here
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]  # set here
    module = ast.fix_missing_locations(ast.Module(body=[around], type_ignores=[]))
    whole = compile(module, code.co_filename, "exec", dont_inherit=True)
    found = _code_in(whole, code.co_name, around is not function)
    return found.replace(co_qualname=code.co_qualname)


def _arguments(*names: str) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(arg=n) for n in names],
        kwonlyargs=[], kw_defaults=[], defaults=[],
    )  # fmt: skip


def _code_in(compiled: CodeType, name: str, nested: bool) -> CodeType:
    inner = [c for c in compiled.co_consts if isinstance(c, CodeType)]
    if nested:
        return _code_in(inner[0], name, False)
    return next(c for c in inner if c.co_name == name)


def _is_mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")
