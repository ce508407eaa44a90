"""Names that a change made untrue: `probs` that holds logits now, `likelihood` that returns its logarithm."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import libcst as cst

from whynan.repair.case import Case
from whynan.repair.edit import Edit
from whynan.repair.places import Lost, Place
from whynan.repair.project import Project
from whynan.repair.source import Source

AGAIN = "__again"  # stands for the probability until its name is free
SAYS_SO = re.compile(r"(^|_)(p|ps|prob|probs|proba|probabilities|probability)(?=$|_|\d)")
# Of a function whose value is positive: without one of these it says nothing of what it returns.
POSITIVE = re.compile(
    r"(^|_)(p|ps|prob|probs|proba|probability|probabilities|exp|pdf|density|densities|likelihood|rate|rates|intensity|partition|evidence|mixture|marginal|odds|weight|weights|kernel|gaussian)(?=$|_|\d)"
)
LOGARITHM = re.compile(r"(^|_)log|logit|nll")
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
    if not isinstance(node, cst.Name) or node.value.lower() in NEUTRAL:
        return None
    if LOGARITHM.search(node.value):
        return None
    if len(source.bindings(node.value, source.scope(node))) != 1:
        return None
    return Holder(source.path, _around(source, node), node.value)


def told_right(
    case: Case,
    texts: Mapping[str, str],
    held: tuple[list[Holder], list[Place]],
    word: str,
    again: Callable[[str], str],
) -> dict[str, str]:
    """The files with names that say what variables hold and functions return: a `word`, "logits" or
    "log". Where the value itself is read, it is computed from that, under its old name."""
    holders, functions = held
    told = dict(texts)
    for path in {found.path for found in holders}:
        source = case.with_texts(told).source_of(path)
        if source is not None:
            told[path] = _variables(source, [h for h in holders if h.path == path], word, again)
    for function in functions:
        told = _called_right(case.with_texts(told), function, word)
    return told


def _variables(
    source: Source, holders: list[Holder], word: str, again: Callable[[str], str]
) -> str:
    edit = Edit(source)
    for found in holders:
        new = _new_name(source, found, word)
        reads = _of(source, found, found.name + AGAIN)
        for name in _of(source, found, found.name) if new is not None else ():
            edit.replace(name, new or "")
        where = _after(source, found) if new is not None and reads else None
        if where is not None:
            _insert(edit, where, f"{found.name} = {again(new or '')}")
        for read in reads:
            edit.replace(read, found.name if where is not None else again(new or found.name))
    return edit.text()


def _called_right(case: Case, function: Place, word: str) -> dict[str, str]:
    """A function named for what it returned, unless its name is also said in another way."""
    definition, texts = function.node, dict(case.texts)
    assert isinstance(definition, cst.FunctionDef)
    old = definition.name.value
    if LOGARITHM.search(old) or not (SAYS_SO if word == "logits" else POSITIVE).search(old):
        return texts
    new, project, edits = _worded(old, word), Project(case), list[Edit]()
    try:
        if any(n.value == new for s in project.mentioning(new) for n in s.every(cst.Name)):
            return texts
        for source in project.mentioning(old):
            names = [n for n in source.every(cst.Name) if n.value == old]
            if not all(_is_the_function(source, n) for n in names) or _is_text(source, old):
                return texts
            edits.append(Edit(source))
            for name in names:
                edits[-1].replace(name, new)
    except Lost:
        return texts
    defined = [n for e in edits for n in e.source.every(cst.FunctionDef) if n.name.value == old]
    return {**texts, **{e.source.path: e.text() for e in edits if len(defined) == 1}}


def keys_told_right(
    case: Case, texts: Mapping[str, str], keys: Mapping[str, set[cst.CSTNode]], word: str
) -> dict[str, str]:
    """Entries and fields named for a probability, if every place is known in which the name is one."""
    told = dict(texts)
    for name, known in keys.items():
        new, there = _worded(name, word), Project(case.with_texts(told))
        try:
            if not SAYS_SO.search(name) or _keys(Project(case), new) or set(_keys(Project(case), name)) - known:  # fmt: skip
                continue
            for source in there.mentioning(name):
                edit = Edit(source)
                for key in _keys(there, name):
                    if source.parent(key) is not None:
                        edit.replace(key, source.code(key).replace(name, new))
                told[source.path] = edit.text()
        except Lost:
            continue
    return told


def _keys(project: Project, name: str) -> list[cst.BaseExpression]:
    """Strings, attributes, keywords and fields of that name."""
    return [
        node
        for source in project.mentioning(name)
        for node in (*source.every(cst.SimpleString), *source.every(cst.Name))
        if (isinstance(node, cst.SimpleString) and node.evaluated_value == name)
        or (isinstance(node, cst.Name) and node.value == name and _is_key(source, node))
    ]


def _is_key(source: Source, node: cst.Name) -> bool:
    above = source.parent(node)
    if isinstance(above, cst.AnnAssign):
        body = source.parent(source.parent(source.parent(node) or node) or node)
        return isinstance(body, cst.IndentedBlock) and isinstance(source.parent(body), cst.ClassDef)
    if isinstance(above, cst.Arg):
        return above.keyword is node
    return isinstance(above, cst.Attribute) and above.attr is node


def _is_the_function(source: Source, name: cst.Name) -> bool:
    """Where it is defined, imported or called."""
    above = source.parent(name)
    if isinstance(above, cst.Attribute) and above.attr is name:
        name, above = above, source.parent(above)  # type: ignore[assignment]  # whose name it is
    if isinstance(above, cst.ImportAlias):
        return above.asname is None
    called = isinstance(above, cst.Call) and above.func is name
    return called or (isinstance(above, cst.FunctionDef) and above.name is name)


def _is_text(source: Source, word: str) -> bool:
    return any(source.code(t).strip("\"'") == word for t in source.every(cst.SimpleString))


def _worded(name: str, word: str) -> str:
    """`probs` as `logits` or `log_probs`."""
    if word == "log":
        new = SAYS_SO.sub(lambda m: f"{m[1]}log_{m[2]}", name, count=1)
        return new if new != name else f"log_{name}"
    new = SAYS_SO.sub(lambda m: f"{m[1]}{word}", name, count=1)
    return new if new != name else f"{name}_{word}"


def _new_name(source: Source, found: Holder, word: str) -> str | None:
    """If it is free, and nobody outside spells the old one."""
    new = _worded(found.name, word)
    if word == "log" and not POSITIVE.search(found.name):
        return None  # it says neither
    every = [n for n in source.every(cst.Name) if n.value == found.name]
    variables = [n for n in every if _is_variable(source, n) and not _is_local(source, n)]
    own = _of(source, found, found.name)
    seen = (n for n in source.every(cst.Name) if _around(source, n)[: len(found.function)] == found.function or not _around(source, n))  # fmt: skip
    taken = {n.value for n in seen}
    spelled = {source.code(a.keyword) for a in source.every(cst.Arg) if a.keyword and not _makes(source, a)}  # fmt: skip
    if new in taken or (found.function and found.name in spelled):
        return None
    return new if found.function or len(own) == len(variables) else None  # a function reads it


def _is_local(source: Source, name: cst.Name) -> bool:
    """Of a function that gives the name a value of its own."""
    scope = source.scope(name)
    return scope is not source.module and bool(source.bindings(name.value, scope))


def _makes(source: Source, arg: cst.Arg) -> bool:
    """`Categorical(probs=p)`: that keyword belongs to a class."""
    call = source.parent(arg)
    name = source.code(call.func).split(".")[-1] if isinstance(call, cst.Call) else ""
    return name[:1].isupper()


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
