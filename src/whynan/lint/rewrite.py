"""Builds the text of a fix out of the text that is there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whynan.lint.finding import Edit
from whynan.lint.terms import SHAPE_OPS, Term, walk

if TYPE_CHECKING:
    from whynan.lint.flow import Walker

ATOMS = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)
CHEAP = SHAPE_OPS | frozenset([
    "name", "attr", "const", "add", "sub", "mul", "div", "neg", "matmul", "pow", "tuple",
    "compare", "invert", "slice",
])  # fmt: skip


def text(term: Term, here: Walker) -> str:
    """The term as typed."""
    return here.source.segment(term.node)


def operand(term: Term, here: Walker) -> str:
    """The term as typed, safe to put a dot or an operator beside."""
    typed = text(term, here)
    return typed if isinstance(term.node, ATOMS) and not typed.startswith("-") else f"({typed})"


def negated(term: Term, here: Walker) -> str:
    return f"-{operand(term, here)}"


def function(qualified: str, here: Walker) -> tuple[str, str]:
    """How to call a function here, and the import it needs if there is none."""
    spelled = here.source.spell(qualified)
    if spelled:
        return spelled, ""
    return qualified, f"import {qualified.split('.')[0]}"


def call(whole: Term, here: Walker, qualified: str, parts: list[Term], *more: str) -> Edit | None:
    """Replace a term by a call on parts of it, when these can be evaluated here."""
    if not all(movable(p, whole, here) for p in parts):
        return None
    name, needs = function(qualified, here)
    inside = ", ".join([*(text(p, here) for p in parts), *(m for m in more if m)])
    return Edit(node=whole.node, text=f"{name}({inside})", needs=needs)


def inside(part: Term, whole: Term) -> bool:
    """Does a term stand within another in the source?"""
    a, b = part.node, whole.node
    return (b.lineno, b.col_offset) <= (a.lineno, a.col_offset) and (
        (a.end_lineno or 0, a.end_col_offset or 0) <= (b.end_lineno or 0, b.end_col_offset or 0)
    )


def movable(part: Term, whole: Term, here: Walker) -> bool:
    """Can a term be written here? Either it stands here, or every variable is still the same."""
    if inside(part, whole):
        return True
    for t in walk(part):
        if t.op not in CHEAP:
            return False
        if t.op == "name" and here.env.get(str(t.value)) is not t.binding:
            known = here.reader.globals(str(t.value))
            own = here.reader.own_class
            attribute = own.attributes.get(str(t.value)[5:]) if own else None
            if t.binding is None or t.binding not in (known, attribute):
                return False
    return True


def option(name: str, term: Term | None, here: Walker) -> str:
    """`dim=-1`, or nothing when the original did not say."""
    return f"{name}={text(term, here)}" if term is not None else ""
