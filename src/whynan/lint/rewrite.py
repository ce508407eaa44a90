"""Builds the text of a fix out of the text that is there.

A fix is offered only if it means the same and runs: every operand can be evaluated at its place,
every name in it is certainly bound there, and no argument of what it replaces is lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whynan.lint.facts import is_whole
from whynan.lint.finding import Edit
from whynan.lint.names import evaluated
from whynan.lint.terms import SHAPE_OPS, Term, resolve, same, walk
from whynan.ops.table import OPERATORS, row, that
from whynan.source.trees import expression_of

if TYPE_CHECKING:
    from whynan.lint.flow import Walker

ATOMS = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)
# Reading these again costs little and gives the same: no layer, no random number, no matrix product.
CHEAP = (
    SHAPE_OPS
    | ({op.name for op in OPERATORS.values()} - {"matmul"})
    | that("asks")
    | {"name", "attr", "const", "tuple", "compare", "invert", "slice", "and", "or", "abs"}
)
# Where no module is bound, a tensor still has these.
METHODS = {
    "torch.nn.functional.log_softmax": "log_softmax", "torch.softmax": "softmax",
    "torch.logsumexp": "logsumexp", "torch.expm1": "expm1", "torch.log1p": "log1p",
    "torch.logit": "logit", "torch.sigmoid": "sigmoid", "torch.tanh": "tanh",
    "torch.logdet": "logdet", "torch.linalg.slogdet": "slogdet", "torch.var": "var",
    "torch.isnan": "isnan", "torch.linalg.vector_norm": "norm",
}  # fmt: skip
# Torch has no kernels for whole numbers here, though it has for what is replaced.
FLOATS_ONLY = frozenset({
    "torch.softmax", "torch.nn.functional.logsigmoid", "torch.nn.functional.softplus",
    "torch.nn.functional.silu", "torch.linalg.vector_norm",
    "torch.nn.functional.binary_cross_entropy_with_logits",
})  # fmt: skip


def text(term: Term, here: Walker) -> str:
    """The term as typed."""
    return here.source.segment(term.node)


def operand(term: Term, here: Walker) -> str:
    """The term as typed, safe to put a dot or an operator beside."""
    typed = text(term, here)
    return typed if isinstance(term.node, ATOMS) and not typed.startswith("-") else f"({typed})"


def negated(term: Term, here: Walker) -> str:
    return f"-{operand(term, here)}"


def other_arguments(term: Term, here: Walker) -> list[str] | None:
    """What a call is given besides its first argument, as typed; None if that cannot be told."""
    node = term.node
    if term.form != "call" or not isinstance(node, ast.Call) or not node.args:
        return None
    if not all(k.arg for k in node.keywords):
        return None
    typed = [here.source.segment(a) for a in node.args[1:]]
    return typed + [f"{k.arg}={here.source.segment(k.value)}" for k in node.keywords]


def call(
    whole: Term,
    here: Walker,
    function: str,
    *arguments: Term | str,
    uses: Iterable[Term] = (),
    shape: str = "{}",
    instead: Term | None = None,
    **options: Term | None,
) -> Edit | None:
    """Replace a term, or a part of it, by a call of a function given by its full name.

    `uses` are the terms that arguments given as text are made of; `shape` is what stands around the
    call; an option that is None was not said and is not said now.
    """
    given = {name: term for name, term in options.items() if term is not None}
    terms = [*(a for a in arguments if isinstance(a, Term)), *uses, *given.values()]
    if here.reader.in_text:
        return None  # quotes in quotes
    if any(isinstance(t.node, ast.Starred) or not movable(t, whole, here) for t in terms):
        return None
    if function in FLOATS_ONLY and is_whole(terms[0]):
        return None
    if instead is None and not _keeps_every_argument(whole, terms):
        return None
    inside = [a if isinstance(a, str) else text(a, here) for a in arguments]
    inside += [f"{name}={text(term, here)}" for name, term in given.items()]
    node = (instead or whole).node
    library = function.split(".", 1)[0]
    name = spell(function, whole, here)
    if not name and function in METHODS:
        first = expression_of(inside[0])
        receiver = inside[0] if isinstance(first, ATOMS) else f"({inside[0]})"
        written = f"{receiver}.{METHODS[function]}({', '.join(inside[1:])})"
        return Edit(node=node, text=shape.format(written), library=library)
    above = 0 if name else _importable(library, whole, here)
    if not name and not above:
        return None
    written = shape.format(f"{name or function}({', '.join(inside)})")
    needs = f"import {library}" if above else ""
    return Edit(node=node, text=written, library=library, needs=needs, above=above)


def spell(function: str, whole: Term, here: Walker) -> str:
    """How a function can be called in the place of a term; '' when no name is certainly bound."""
    scope, at = here.scope, (whole.node.lineno, whole.node.col_offset)
    read = evaluated(whole.node)
    best = (0, False, "")
    for local in scope.visible():
        full = scope.meaning(local)
        leads_there = full == function or (full and function.startswith(f"{full}."))
        if not leads_there or local in here.env:
            continue
        if local in read or scope.is_bound(local, at):
            best = max(best, (len(full), local in read, local))
    length, _, local = best
    return local + function[length:] if local else ""


def _importable(package: str, whole: Term, here: Walker) -> int:
    """The line above which `import package` may be added; 0 if the file gives no place for it.

    A file that imports from the package as soon as it is loaded may as well import the package; one
    that does so later, or only if it can, has its reasons.
    """
    if package in here.env or here.scope.owner(package) is not None:
        return 0
    first = here.names.first_import(package)
    moment = here.scope.moment(here.names.top, (whole.node.lineno, whole.node.col_offset))
    return first.lineno if first is not None and (first.lineno, first.col_offset) < moment else 0


def _keeps_every_argument(whole: Term, kept: list[Term]) -> bool:
    """Has what is replaced no arguments, such as `out=` or `dtype=`, that the fix knows nothing of?"""
    nodes = {id(k.node) for k in kept}
    stack = [whole]
    while stack:
        term = stack.pop()
        if term.op == "name" and "." in str(term.value):
            return False  # a number today, and another in a subclass
        term = resolve(term)
        if term.form in ("call", "method"):
            known = row(term.op).takes
            if term.kind == "array" and "keepdim" in known and "p" not in known:
                known = known[:2]  # NumPy has a dtype in the place of torch's keepdim
            named = {*known, "keepdim"} if "dim" in known else known
            odd = [*term.args[len(known) :], *(v for k, v in term.kw.items() if k not in named)]
            if any(id(t.node) not in nodes for t in odd):
                return False
        if isinstance(term.node, ast.Starred):
            return False
        stack.extend(t for t in term.children if id(t.node) not in nodes and not any(same(t, k) for k in kept))  # fmt: skip
    return True


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
    return repeatable(part) and all(_unchanged(t, here) for t in walk(part))


def repeatable(term: Term) -> bool:
    """May a term be evaluated once more than it was?"""
    return all(t.op in CHEAP for t in walk(term))


def _unchanged(term: Term, here: Walker) -> bool:
    if term.op == "const":  # `np.pi`: a name that may mean something else here
        return not any(isinstance(n, ast.Name) for n in ast.walk(term.node))
    if term.op != "name":
        return True
    name, binding = str(term.value), term.binding
    if "." in name:  # any method may give an attribute another value, unless only `__init__` does
        own = here.reader.own_class
        return own is not None and name[5:] in own.settled and own.attributes[name[5:]] is binding
    if binding is None:
        owner = here.scope.owner(name)
        return name not in here.env and (owner is None or owner.own.get(name, 0) <= 1)
    return here.env.get(name, here.reader.globals(name)) is binding
