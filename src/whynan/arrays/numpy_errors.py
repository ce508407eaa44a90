"""The operation behind a floating-point warning of NumPy, as evidence.

NumPy warns of an operation that divided by zero, overflowed or was invalid. At that moment its
operands are still there: the operation is done once more, and looked at.
"""

from __future__ import annotations

import ast
import math
import operator
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

from whynan.arrays.evidence import evidence_of
from whynan.arrays.place import is_library, programs_own
from whynan.model import Evidence, Operand, OpRecord, Site, TensorStats
from whynan.ops.table import OPERATORS as PYTHON
from whynan.ops.table import TABLE
from whynan.source.carriers import names_written, scope_of
from whynan.source.positions import site_at
from whynan.source.trees import expression_of, function_of, statement_at

OPERATORS: dict[type[ast.AST], tuple[str, Callable[..., Any]]] = {
    getattr(ast, node): (op.python[1], getattr(operator, op.python[1]))
    for node, op in PYTHON.items()
    if hasattr(ast, node)
}
# Parts of an expression that can be evaluated a second time without anyone noticing.
HARMLESS = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.BinOp,
    ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Compare, ast.cmpop, ast.List,
)  # fmt: skip


BUILTINS: dict[str, Any] = {"len": len, "float": float, "int": int, "abs": abs}
# Functions of NumPy's own, besides its ufuncs, that compute from their arguments and nothing else.
SEVERAL = ("elementwise", "product", "matrix", "join", "lookup", "move", "put", "cross")
PURE = {
    name
    for op in TABLE
    if (op.reads not in SEVERAL and not op.does & {"random", "overwrites", "allocates"})
    or "keeps" in op.does
    for name in op.numpy
} | {"clip", "dot", "corrcoef", "cov", "ptp", "diag", "float16", "float32", "float64", *BUILTINS}


@dataclass(frozen=True, slots=True)
class Place:
    """A frame of the program, and the line it was at."""

    frame: int  # its id: holding the frame itself would keep the program's arrays alive
    code: CodeType
    line: int
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One operation that NumPy warned of."""

    evidence: Evidence
    said: str
    places: tuple[Place, ...]  # innermost first
    follows: bool  # from a value that was not finite either
    followers: list[OpRecord] = field(default_factory=list)  # what it then turned into
    is_hidden: bool = False  # a filter of the program's keeps the warning back

    @property
    def is_share_of_nothing(self) -> bool:
        """One entry of a table, where no things are divided by no things: the recall of a class that
        does not occur. That NaN is the answer, where it is only shown."""
        op = self.evidence.origin
        whole = all(
            o.stats is not None and "int" in o.stats.dtype and o.value == 0 for o in op.inputs
        )
        some = op.out is not None and 0 < op.out.nonfinite < op.out.count
        return op.name == "div" and len(op.inputs) == 2 and whole and some

    @property
    def kinds(self) -> frozenset[str]:
        """`nan`, `inf` or both: NumPy warns again when an infinity becomes NaN."""
        found = set()
        for op in (self.evidence.origin, *self.followers):
            out, value = op.out, math.nan if op.value is None else op.value
            seen = out is not None and out.nonfinite > 0
            if (out is not None and out.nan) or (not seen and math.isnan(value)):
                found.add("nan")
            if (out is not None and out.inf) or (not seen and math.isinf(value)):
                found.add("inf")
        return frozenset(found)


def event_of(frame: FrameType | None, said: str, lasti: int | None = None) -> Event | None:
    """What the running frame did when NumPy complained; None if no line of the program did it."""
    import numpy as np

    inner, frame = frame, programs_own(frame)
    if frame is None:
        return None
    site = site_at(frame.f_code, frame.f_lasti if lasti is None else lasti)
    found: Evidence | None = None
    with np.errstate(all="ignore"):
        for infinite in (False, True):
            if found is None and _is_numpys(inner, frame):
                found = _tried(site, frame, said, infinite)
    follows = found is not None and any(o.stats and o.stats.nonfinite for o in found.origin.inputs)
    return Event(found or _unexplained(site, said), said, places_of(frame), follows)


def places_of(frame: FrameType | None) -> tuple[Place, ...]:
    """The program's own part of a stack."""
    return tuple(
        Place(id(f), f.f_code, line, site_at(f.f_code, f.f_lasti).column)
        for f, line in (traceback.walk_stack(frame) if frame is not None else ())
        if not is_library(f.f_code.co_filename)
    )


def _is_numpys(inner: FrameType | None, user: FrameType) -> bool:
    """Whether the program called NumPy itself, not a library that uses it.

    pandas hands `np.log(series)` on as it is.
    """
    while inner is not None and inner is not user:
        folders = inner.f_code.co_filename.split(os.sep)
        if "numpy" not in folders and "pandas" not in folders:
            return False
        inner = inner.f_back
    return True


def _unboxed(value: Any) -> Any:
    """The array inside a pandas Series or DataFrame."""
    boxed = type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_numpy")
    return value.to_numpy() if boxed else value


def _tried(site: Site, frame: FrameType, said: str, infinite: bool) -> Evidence | None:
    try:
        return _repeated(site, frame, said, infinite)
    except Exception:  # a name that is gone, a warning that is an error here: it cannot be repeated
        return None


def _repeated(site: Site, frame: FrameType, said: str, infinite: bool) -> Evidence | None:
    """The operation once more, from the operands as they still are in the program's frame."""
    import numpy as np

    scope: Mapping[str, Any] = {**frame.f_globals, **frame.f_locals}
    if not site.expression:
        return _in_place(site, frame, scope, said)
    tree = expression_of(site.expression)
    options: dict[str, Any] = {}
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        name, function = OPERATORS[type(tree.op)]
        parts = [tree.left, tree.right]
    elif isinstance(tree, ast.Call) and isinstance(tree.func, (ast.Attribute, ast.Name)):
        if not _harmless(tree, scope):
            return None
        function = _value(tree.func, scope)
        name, parts = function.__name__, list(tree.args)
        options = {k.arg: _value(k.value, scope) for k in tree.keywords if k.arg}
        owner = getattr(function, "__self__", None)
        if isinstance(owner, (np.ndarray, np.generic)) and isinstance(tree.func, ast.Attribute):
            function, parts = getattr(type(owner), name), [tree.func.value, *parts]
    else:
        return None
    if not all(_harmless(part, scope) for part in parts):
        return None
    operands = [_unboxed(_value(part, scope)) for part in parts]
    takes = getattr(function, "nin", len(operands))
    out = options.pop("out", None), *operands[takes:]  # it is not written over once more
    operands = operands[:takes]
    if any(np.may_share_memory(a, b) for a in operands for b in out if b is not None):
        return None
    arrays = [np.asarray(o) if isinstance(o, (list, tuple)) else o for o in operands]
    numeric = (np.ndarray, np.generic, int, float)
    if not all(isinstance(o, numeric) for o in arrays[: 1 if name in PURE else None]):
        return None
    result = np.asarray(function(*operands, **options))
    if name == "corrcoef":  # a covariance over the deviations
        name, arrays = "truediv", _correlated(operands, options)
    shown = arrays if name not in PURE or name in ("dot", "outer") else arrays[:1]
    found = evidence_of(name, shown, result, site, "numpy", {}, infinite=infinite)
    if found is None or name not in ("std", "var"):
        return found
    # NumPy divides by the count where torch divides by one less.
    ddof = options.get("ddof", 0)
    return replace(found, origin=replace(found.origin, scalars={"correction": ddof}))


def _correlated(operands: list[Any], options: dict[str, Any]) -> list[Any]:
    """The covariance that a correlation is made of, and what it is divided by."""
    import numpy as np

    covariance = np.atleast_2d(np.cov(*operands, **options))
    deviation = np.sqrt(np.diag(covariance))
    return [covariance, np.outer(deviation, deviation)]


def _in_place(site: Site, frame: FrameType, scope: Mapping[str, Any], said: str) -> Evidence | None:
    """`x /= s`: the result stands in `x` already; what it was before is gone."""
    import numpy as np

    body, names = function_of(frame.f_code), scope_of(frame.f_code)
    found = statement_at(body, site.line) if body is not None else None
    if names is None or not isinstance(found, ast.AugAssign) or type(found.op) not in OPERATORS:
        return None
    if not (_harmless(found.target, scope) and _harmless(found.value, scope)):
        return None
    target = expression_of(ast.unparse(found.target))
    assert target is not None
    out, other = _value(target, scope), _value(found.value, scope)
    if not isinstance(out, np.ndarray) or out.dtype.kind != "f":
        return None
    name, _ = OPERATORS[type(found.op)]
    read = {n.id for n in ast.walk(found.value) if isinstance(n, ast.Name)}
    if (
        name == "truediv"
        and (np.asarray(other) == 0).any()
        and not read & names_written(names, found)
    ):
        operands = [np.ones_like(out), other]  # the first is gone: a zero divisor is proof enough
        return evidence_of(name, operands, out, site, "numpy", {}, lost_first=True)
    found_here = evidence_of(name, [], out, site, "numpy", {})
    if found_here is None:
        return None
    lost = replace(found_here.origin, op="numpy.unseen", scalars={"said": said})
    why = "its operands, which were overwritten by the result"
    return replace(found_here, origin=lost, incomplete=why)


def _harmless(part: ast.AST, scope: Mapping[str, Any]) -> bool:
    """Whether it can be evaluated a second time without anyone noticing."""
    if isinstance(part, ast.Call):
        owner = part.func.value if isinstance(part.func, ast.Attribute) else part.func
        if not _harmless(owner, scope) or not is_pure(_value(part.func, scope)):
            return False
        inside: list[ast.AST] = [owner, *part.args, *(k.value for k in part.keywords)]
        return all(_harmless(p, scope) for p in inside) and all(k.arg for k in part.keywords)
    if not isinstance(part, HARMLESS):
        return False
    return all(_harmless(child, scope) for child in ast.iter_child_nodes(part))


def is_pure(called: Any) -> bool:
    """A function of NumPy's own that computes from its arguments and nothing else."""
    import numpy as np

    if isinstance(called, np.ufunc):
        return True
    owner = getattr(called, "__self__", None)
    if getattr(called, "__name__", "") == "to_numpy":
        return type(owner).__module__.split(".")[0] == "pandas"
    is_tensor = type(owner).__module__.split(".")[0] == "torch"
    if is_tensor and getattr(called, "__name__", "") in ("numpy", "detach", "cpu"):
        return True
    if getattr(called, "__name__", "") not in PURE:
        return False
    if called in BUILTINS.values():
        return True
    if isinstance(owner, (np.ndarray, np.generic)):
        return type(owner).__module__.split(".")[0] == "numpy"
    return str(getattr(called, "__module__", "")).split(".")[0] == "numpy"


def _value(part: ast.expr, scope: Mapping[str, Any]) -> Any:
    code = compile(ast.Expression(part), "<whynan>", "eval")
    return eval(code, {"__builtins__": BUILTINS}, dict(scope))


def _unexplained(site: Site, said: str) -> Evidence:
    """Where the operands are gone or inside a library: the line, and what NumPy said."""
    value = math.inf if said.startswith(("divide by zero", "overflow")) else math.nan
    out = Operand(role="out", stats=TensorStats(shape=(), dtype="float64"), value=value)
    # Not of the namespace `array`: without operands no rule but the last may speak.
    origin = OpRecord(
        index=0, op="numpy.unseen", phase="data", step=0, site=site, outputs=(out,),
        scalars={"said": said},
    )  # fmt: skip
    return Evidence(
        sink="output", subject="result", step=0, origin=origin, origin_kind="operation",
        sink_site=site, sink_value=value,
        incomplete="its operands, which could not be looked at again",
    )  # fmt: skip
