"""What a call stands for, once its arguments are terms: a function, a method, a module."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from whynan.lint.libraries import OTHER, family
from whynan.lint.receivers import is_operand
from whynan.lint.spelling import (
    KNOWN,
    SCALAR_CALLS,
    SCALAR_METHODS,
    TENSOR_METHODS,
    TRANSPARENT,
    operation,
    split,
)
from whynan.lint.terms import SHAPE_OPS, Kind, Term, joined, resolve
from whynan.ops.table import MODULES

LOGGERS = ("log", "logger", "accelerator", "tracker", "wandb", "self", "trainer", "writer", "run")


@dataclass
class ClassInfo:
    """What is known of a class in this file."""

    name: str
    is_module: bool = False
    attributes: dict[str, Term] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)  # those that are the same for life
    returned: Term | None = None  # what `forward` gives, when every return agrees


def of_function(node: ast.Call, name: str, args: tuple[Term, ...], kw: dict[str, Term]) -> Term:
    """A function of a library, by its full name; `nn.Linear(...)` makes a module."""
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
    return Term(op, node, args, kw, lib=library, form="call", kind=kind)


def of_builtin(node: ast.Call, name: str, args: tuple[Term, ...], kw: dict[str, Term]) -> Term:
    """A function of Python's own."""
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


def of_method(
    node: ast.Call, name: str, receiver: Term, args: tuple[Term, ...], kw: dict[str, Term]
) -> Term:
    """A method, which may be one of the operations under its own or another name."""
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
    of_torch = any(a.op == "imported" and str(a.value).startswith("torch.") for a in (*args, *kw.values()))  # fmt: skip
    if kind == "?" and (op in TENSOR_METHODS or name.startswith("clamp") or (op == "cast" and of_torch)):  # fmt: skip
        kind = "tensor"
    if name == "numpy":
        kind = "array"
    if op in ("rand", "exponential") and name in ("uniform_", "exponential_"):
        return Term(op, node, (receiver, *args), kw, lib="torch", form="method", kind="tensor")
    return Term(op, node, (receiver, *args), kw, form="method", kind=kind)


def of_module(
    classes: dict[str, ClassInfo], target: Term, node: ast.Call, args: tuple[Term, ...]
) -> Term:
    """A module: `nn.Sequential` in order, a class of this file through its `forward`."""
    if target.op == "instance":
        info = classes.get(str(target.value))
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
                value = of_module(classes, inner, node, (value,))
            else:
                value = Term("layer", node, (value,), kind="tensor")
        return value
    op = MODULES.get(str(target.value), "layer")
    return Term(op, node, args, dict(target.kw), lib="torch", form="module", kind="tensor")
