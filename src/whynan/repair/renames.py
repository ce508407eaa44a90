"""Names that a change made untrue: `probs` that holds logits now."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.source import Source

AGAIN = "__again"  # stands for the probability until its name is free
SAYS_SO = re.compile(r"(^|_)(p|ps|prob|probs|proba|probabilities|probability)(?=$|_|\d)")
# What may be in these is left open.
NEUTRAL = frozenset(
    {"x", "y", "z", "h", "o", "out", "output", "outputs", "pred", "preds", "prediction",
     "predictions", "y_pred", "y_hat", "yhat", "result", "score", "scores", "input", "inputs"}
)  # fmt: skip


@dataclass(frozen=True)
class Holder:
    """A variable or parameter that holds the value, and the function whose name it is."""

    path: str
    function: tuple[str, ...]  # names from the outside; empty at the top of a file
    name: str


def holder(place: Place) -> Holder | None:
    """Of the name at a place, unless it leaves open what it holds."""
    source, node = place.source, place.node
    if not isinstance(node, cst.Name) or node.value.lower() in NEUTRAL or "logit" in node.value:
        return None
    if len(source.bindings(node.value, source.scope(node))) != 1:
        return None
    return Holder(source.path, _around(source, node), node.value)


def told_right(source: Source, holders: list[Holder], again: Callable[[str], str]) -> Edit:
    """The file with names that say what they hold; where the probability itself is read, it is
    computed from the logits, under its old name."""
    edit = Edit(source)
    for found in holders:
        new = _new_name(source, found)
        reads = _of(source, found, found.name + AGAIN)
        for name in _of(source, found, found.name) if new is not None else ():
            edit.replace(name, new or "")
        where = _after(source, found) if new is not None and reads else None
        if where is not None:
            _insert(edit, where, f"{found.name} = {again(new or '')}")
        for read in reads:
            edit.replace(read, found.name if where is not None else again(new or found.name))
    return edit


def _new_name(source: Source, found: Holder) -> str | None:
    """If it is free, and nobody outside spells the old one."""
    new = SAYS_SO.sub(lambda m: f"{m[1]}logits", found.name, count=1)
    new = new if new != found.name else f"{found.name}_logits"
    every = [n for n in source.every(cst.Name) if n.value == found.name]
    variables = [n for n in every if _is_variable(source, n)]
    own = _of(source, found, found.name)
    taken = {n.value for n in source.every(cst.Name)}
    spelled = {source.code(a.keyword) for a in source.every(cst.Arg) if a.keyword}
    if new in taken or (found.function and found.name in spelled):
        return None
    return new if found.function or len(own) == len(variables) else None  # a function reads it


def _of(source: Source, found: Holder, name: str) -> list[cst.Name]:
    """Where a variable of that function is mentioned."""
    return [
        n
        for n in source.every(cst.Name)
        if n.value == name and _around(source, n) == found.function and _is_variable(source, n)
    ]


def _after(source: Source, found: Holder) -> tuple[cst.CSTNode, bool] | None:
    """The line that gives the variable its value; for a parameter, before the first statement."""
    target = next(n for n in _of(source, found, found.name) if source.binding(n) is not None)
    line = source.statement(target)
    if line is not None:
        return line, True
    function = next((a for a in source.ancestors(target) if isinstance(a, cst.FunctionDef)), None)
    body = function.body.body if function is not None else ()
    plain = [s for s in body if isinstance(s, cst.BaseStatement) and not _is_docstring(s)]
    return (plain[0], False) if plain else None


def _insert(edit: Edit, where: tuple[cst.CSTNode, bool], statement: str) -> None:
    line, after = where
    if after:
        edit.after(line, statement)
    else:
        edit.before(line, statement)


def _is_docstring(statement: cst.BaseStatement) -> bool:
    first = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString)


def _around(source: Source, node: cst.CSTNode) -> tuple[str, ...]:
    kinds = (cst.FunctionDef, cst.ClassDef)
    return tuple(a.name.value for a in source.ancestors(node) if isinstance(a, kinds))[::-1]


def _is_variable(source: Source, node: cst.Name) -> bool:
    """Neither an attribute's name nor a keyword's."""
    return source.reads(node) or source.binding(node) is not None
