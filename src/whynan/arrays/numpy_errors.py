"""NumPy's own floating-point errors, caught where they happen at no cost while none does.

NumPy calls back after an operation that divided by zero, overflowed or was invalid, unless the
program asked for `np.errstate(...="ignore")`, which is its word that this is meant.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from whynan.arrays.evidence import evidence_of
from whynan.arrays.place import is_library, site_of
from whynan.model import Evidence, Operand, OpRecord, Site, TensorStats

OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("truediv", operator.truediv),
    ast.Mod: ("mod", operator.mod),
    ast.Pow: ("pow", operator.pow),
    ast.MatMult: ("matmul", operator.matmul),
}
# Parts of an expression that can be evaluated a second time without anyone noticing.
HARMLESS = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.BinOp,
    ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Compare, ast.cmpop,
)  # fmt: skip


class NumpyErrors:
    """While entered, every floating-point error of NumPy becomes evidence, each line once."""

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        self._seen: set[tuple[str, int, int | None]] = set()
        self._before: tuple[Any, Any] | None = None
        self._busy = False

    def __enter__(self) -> NumpyErrors:
        import numpy as np

        self._before = np.geterrcall(), np.geterr()
        np.seterrcall(self._called)
        np.seterr(divide="call", over="call", invalid="call")
        return self

    def __exit__(self, *_: object) -> None:
        import numpy as np

        if self._before is not None:
            np.seterrcall(self._before[0])
            np.seterr(**self._before[1])
            self._before = None

    def _called(self, kind: str, flag: int) -> None:
        """NumPy's call-back; never lets an error of its own out into the program."""
        if self._busy:
            return
        self._busy = True
        try:
            self._note(kind, sys._getframe(1))
        except Exception as error:  # whynan's own failure must not become the program's
            print(f"whynan: could not look at a NumPy error: {error!r}", file=sys.stderr)
        finally:
            self._busy = False

    def _note(self, kind: str, frame: FrameType) -> None:
        import numpy as np

        site = site_of(frame)
        if site is None or (site.file, site.line, site.column) in self._seen:
            return
        self._seen.add((site.file, site.line, site.column))
        direct = not is_library(frame.f_code.co_filename)
        with np.errstate(all="ignore"):
            found = _repeated(site, frame) if direct else None
        self.evidence.append(found or _unexplained(site, kind))


def _repeated(site: Site, frame: FrameType) -> Evidence | None:
    """The operation once more, from the operands as they still are in the program's frame."""
    import numpy as np

    try:
        tree = ast.parse(f"({site.expression}\n)", mode="eval").body
    except SyntaxError:
        return None
    scope: Mapping[str, Any] = {**frame.f_globals, **frame.f_locals}
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        name, function = OPERATORS[type(tree.op)]
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.Call) and not tree.keywords:
        called = _value(tree.func, scope)
        if not isinstance(called, np.ufunc):
            return None
        name, function, parts = called.__name__, called, tree.args
    else:
        return None
    if not all(_harmless(part) for part in parts):
        return None
    operands = [_value(part, scope) for part in parts]
    if not all(isinstance(o, (np.ndarray, np.generic, int, float)) for o in operands):
        return None
    return evidence_of(name, operands, np.asarray(function(*operands)), site, "numpy", {})


def _harmless(part: ast.AST) -> bool:
    return all(isinstance(node, HARMLESS) for node in ast.walk(part))


def _value(part: ast.expr, scope: Mapping[str, Any]) -> Any:
    code = compile(ast.Expression(part), "<whynan>", "eval")
    return eval(code, {"__builtins__": {}}, dict(scope))


def _unexplained(site: Site, kind: str) -> Evidence:
    """Where the operands are gone or inside a library: the line, and what NumPy said."""
    value = math.inf if kind in ("divide by zero", "overflow") else math.nan
    out = Operand(role="out", stats=TensorStats(shape=(), dtype="float64"), value=value)
    # Not of the namespace `array`: without operands no rule but the last may speak.
    origin = OpRecord(index=0, op="numpy.unseen", phase="data", step=0, site=site, outputs=(out,))
    return Evidence(
        sink="output", subject="result", step=0, origin=origin, origin_kind="operation",
        sink_site=site, sink_value=value,
        incomplete=f"NumPy reported `{kind}` here; its operands could not be looked at again",
    )  # fmt: skip
