"""Names that a change made untrue: `probs` that holds logits now."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from whynan.repair.edit import Edit
from whynan.repair.places import Place
from whynan.repair.source import Source

SAYS_SO = re.compile(r"(^|_)(p|ps|prob|probs|proba|probabilities|probability)(?=$|_|\d)")


@dataclass(frozen=True)
class Holder:
    """A variable or parameter that holds the value, and the function whose name it is."""

    path: str
    function: tuple[str, ...]  # names from the outside; empty at the top of a file
    name: str


def holder(place: Place) -> Holder | None:
    """Of the name at a place, if it says that a probability is in it."""
    source, node = place.source, place.node
    if not isinstance(node, cst.Name) or not SAYS_SO.search(node.value):
        return None
    if len(source.bindings(node.value, source.scope(node))) != 1:
        return None
    return Holder(source.path, _around(source, node), node.value)


def told_right(source: Source, holders: list[Holder]) -> Edit:
    """The file with the names that say what they hold."""
    edit = Edit(source)
    for found in holders:
        new = SAYS_SO.sub(lambda m: f"{m[1]}logits", found.name, count=1)
        uses = [n for n in source.every(cst.Name) if n.value == found.name]
        own = [n for n in uses if _around(source, n) == found.function and _is_variable(source, n)]
        taken = {n.value for n in source.every(cst.Name)}
        spelled = {source.code(a.keyword) for a in source.every(cst.Arg) if a.keyword}
        if new in taken or (found.function and found.name in spelled):
            continue
        if len(own) != len([n for n in uses if _is_variable(source, n)]) and not found.function:
            continue  # a function reads the global
        for name in own:
            edit.replace(name, new)
    return edit


def _around(source: Source, node: cst.CSTNode) -> tuple[str, ...]:
    kinds = (cst.FunctionDef, cst.ClassDef)
    return tuple(a.name.value for a in source.ancestors(node) if isinstance(a, kinds))[::-1]


def _is_variable(source: Source, node: cst.Name) -> bool:
    """Neither an attribute's name nor a keyword's."""
    return source.reads(node) or source.binding(node) is not None
