"""The user's files together: where a function is called, a module is run, a name is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from whynan.repair.case import Case
from whynan.repair.source import Expression, Source

MAX_FILES = 300  # a larger tree is not read
ASIDE = frozenset({"site-packages", "__pycache__", "node_modules", "venv", "env", "build", "dist"})
SAME_MODULE = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16", "requires_grad_"}
)
WRAPPERS = frozenset({"compile", "DataParallel", "DistributedDataParallel"})
ONLY_LOOKS = frozenset({"print", "len", "id", "type", "isinstance", "super", "save"})
STILL_ITSELF = frozenset({"no_grad", "inference_mode", "enable_grad", "compile"})  # decorators


class Lost(Exception):
    """The source does not show every place that a value reaches."""


@dataclass(frozen=True)
class Place:
    """A node of one file."""

    source: Source
    node: cst.CSTNode

    @property
    def above(self) -> cst.CSTNode | None:
        return self.source.parent(self.node)


@dataclass
class Project:
    """Own files, each parsed once, so that their nodes can be compared."""

    case: Case
    _sources: dict[str, Source | None] = field(default_factory=dict)
    _texts: dict[str, str] | None = None

    def source(self, path: str) -> Source | None:
        path = os.path.realpath(path)
        if path not in self._sources:
            self._sources[path] = self.case.source_of(path)
        return self._sources[path]

    def mentioning(self, name: str) -> Iterator[Source]:
        """The files in which a word occurs."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        for path, text in self._all_texts().items():
            if word.search(text):
                source = self.source(path)
                if source is None:
                    raise Lost  # a file that mentions it cannot be read
                yield source

    def _all_texts(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = {}
            for path in _python_files(self.case.root or os.getcwd()):
                if len(self._texts) == MAX_FILES:
                    raise Lost
                changed = self.case.texts.get(path)
                text = changed or Path(path).read_text(encoding="utf-8", errors="replace")
                self._texts[path] = text
        return self._texts

    # ---- functions ------------------------------------------------------------------------

    def function(self, source: Source, callee: Expression) -> tuple[Place, int] | None:
        """The user's own function behind a callee, and how many parameters come before the first."""
        if isinstance(callee, cst.Name):
            made = source.definition(callee) or self._module_level(source, callee)
            if isinstance(made, cst.Call) and isinstance(made.func, cst.Name):
                owner = self._defined(source, made.func.value, cst.ClassDef)
                return self._method(owner, "forward") if owner else None
            given = source.bindings(callee.value, source.scope(callee))
            if len(given) == 1 and isinstance(source.parent(given[0]), cst.Param):
                return self._handed_in(source, callee)
            found = self._defined(source, callee.value, cst.FunctionDef)
            return (found, 0) if found is not None else None
        if isinstance(callee, cst.Attribute) and source.code(callee.value) == "self":
            classes = [a for a in source.ancestors(callee) if isinstance(a, cst.ClassDef)]
            return self._method(Place(source, classes[0]), callee.attr.value) if classes else None
        return None

    def _handed_in(self, source: Source, callee: cst.Name) -> tuple[Place, int] | None:
        """Of a parameter, as in `train(net, criterion)`: the same function from every caller."""
        around = source.scope(callee)
        if not isinstance(around, cst.FunctionDef):
            return None
        skipped = int(class_of(source, around) is not None)
        found = set()
        try:
            for call in self.calls_of(Place(source, around)):
                given = argument_for(call, Place(source, around), skipped, callee.value)
                found.add(self.function(call.source, given) if given is not None else None)
        except (Lost, RecursionError):
            return None
        return found.pop() if len(found) == 1 else None

    def _module_level(self, source: Source, name: cst.Name) -> Expression | None:
        """A global that is given a value once: `criterion = FocalLoss()`."""
        given = source.bindings(name.value, source.module)
        if len(given) != 1 or source.bindings(name.value, source.scope(name)) not in ([], given):
            return None
        above = source.parent(source.parent(given[0]) or given[0])
        return above.value if isinstance(above, cst.Assign) else None

    def _defined(self, source: Source, name: str, kind: type[cst.CSTNode]) -> Place | None:
        """The one definition of that name on the level of a file, if this file can mean it."""
        found = [
            Place(other, node)
            for other in self.mentioning(name)
            for node in other.every(kind)
            if isinstance(node, (cst.FunctionDef, cst.ClassDef))
            and node.name.value == name
            and isinstance(other.parent(node), cst.Module)
        ]
        if len(found) != 1:
            return None
        return found[0] if found[0].source is source or _imports(source, name) else None

    def _method(self, owner: Place, name: str) -> tuple[Place, int] | None:
        for node in owner.source.every(cst.FunctionDef, owner.node):
            if node.name.value == name and class_of(owner.source, node) is owner.node:
                return Place(owner.source, node), 1
        return None

    def calls_of(self, function: Place) -> list[Place]:
        """Every call in the project; `Lost` if the function also goes elsewhere as a value."""
        source, node = function.source, function.node
        assert isinstance(node, cst.FunctionDef)
        names = [source.code(d.decorator).split("(")[0].split(".")[-1] for d in node.decorators]
        if not set(names) <= STILL_ITSELF or node.asynchronous:
            raise Lost
        owner = class_of(source, node)
        if owner is not None:
            return self._calls_of_method(Place(source, owner), node.name.value)
        if not isinstance(source.parent(node), cst.Module):
            raise Lost
        calls = []
        for use in self.uses_of(source, node):
            if not isinstance(use.above, cst.Call) or use.above.func is not use.node:
                raise Lost
            calls.append(Place(use.source, use.above))
        return calls

    def _calls_of_method(self, owner: Place, name: str) -> list[Place]:
        if name in ("forward", "__call__"):
            from whynan.repair.instances import Instances

            return Instances(self).of_class(owner)
        calls = []
        for source in self.mentioning(name):
            same = [f for f in source.every(cst.FunctionDef) if f.name.value == name]
            if any(class_of(source, f) is not owner.node for f in same):
                raise Lost  # another method of that name: whose is called is not certain
            for attribute in source.every(cst.Attribute):
                if attribute.attr.value == name:
                    above = source.parent(attribute)
                    if not isinstance(above, cst.Call) or above.func is not attribute:
                        raise Lost
                    calls.append(Place(source, above))
        return calls

    def uses_of(self, home: Source, definition: cst.FunctionDef | cst.ClassDef) -> list[Place]:
        """Where a function or class of the file `home` is mentioned, but for imports."""
        name = definition.name.value
        stem = Path(home.path).stem
        found: list[Place] = []
        for source in self.mentioning(name):
            known = source is home or _imports(source, name)
            for node in source.every(cst.Name):
                above = source.parent(node)
                if node.value != name or above is definition:
                    continue
                if isinstance(above, cst.Attribute) and above.attr is node:
                    if source.code(above.value).split(".")[-1] == stem:
                        found.append(Place(source, above))
                elif isinstance(above, cst.ImportAlias):
                    if above.asname is not None:
                        raise Lost
                elif known and not (isinstance(above, cst.Arg) and above.keyword is node):
                    if isinstance(above, (cst.Param, cst.AssignTarget)):
                        raise Lost  # the name stands for something else, too
                    found.append(Place(source, node))
        return found

    # ---- names ----------------------------------------------------------------------------

    def reads_of(self, source: Source, target: cst.Name) -> list[Place]:
        """Where the value that a name gets at `target` is read; `Lost` if that is not certain."""
        name, scope = target.value, source.scope(target)
        given = source.bindings(name, scope)
        if any(isinstance(source.parent(g), cst.AugAssign) for g in given):
            raise Lost
        found = []
        for read in source.every(cst.Name, None if scope is source.module else scope):
            if read.value != name or not source.reads(read) or _is_other(source, read, scope):
                continue
            if source.scope(read) is not scope:
                if len(given) > 1:
                    raise Lost
            elif not _reaches(source, given, target, read):
                continue
            if _changes(source, read):
                raise Lost
            found.append(Place(source, read))
        return found


def class_of(source: Source, node: cst.CSTNode) -> cst.ClassDef | None:
    """The class whose method it is."""
    block = source.parent(node)
    above = source.parent(block) if block is not None else None
    return above if isinstance(above, cst.ClassDef) else None


def parameter_for(found: tuple[Place, int], call: cst.Call, arg: cst.Arg) -> cst.Name | None:
    """The parameter that an argument becomes."""
    function, skipped = found
    assert isinstance(function.node, cst.FunctionDef)
    parameters = function.node.params
    names = [p.name for p in (*parameters.params, *parameters.kwonly_params)]
    if arg.keyword is not None:
        return next((n for n in names if n.value == arg.keyword.value), None)
    position = list(call.args).index(arg) + skipped
    if any(a.star for a in call.args) or position >= len(parameters.params):
        return None
    return parameters.params[position].name


def argument_for(
    call: Place, function: Place, skipped: int, name: str
) -> cst.BaseExpression | None:
    """What a call gives for a parameter."""
    assert isinstance(call.node, cst.Call)
    for arg in call.node.args:
        parameter = parameter_for((function, skipped), call.node, arg)
        if parameter is not None and parameter.value == name:
            return arg.value
    return None


def _python_files(root: str) -> Iterator[str]:
    for folder, inner, files in os.walk(os.path.realpath(root)):
        inner[:] = sorted(d for d in inner if d not in ASIDE and not d.startswith("."))
        yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(".py"))


def _imports(source: Source, name: str) -> bool:
    for statement in source.every(cst.ImportFrom):
        module = source.code(statement.module) if statement.module else ""
        if module.split(".")[0] == "torch":
            continue
        if isinstance(statement.names, cst.ImportStar):
            return True
        if any(source.code(alias.name) == name for alias in statement.names):
            return True
    return False


def _is_other(source: Source, read: cst.Name, scope: cst.CSTNode) -> bool:
    """Inside a function that has a variable of that name of its own."""
    inner = source.scope(read)
    while inner is not scope and inner is not source.module:
        if source.bindings(read.value, inner):
            return True
        inner = source.scope(inner)
    return inner is not scope


def _reaches(source: Source, given: list[cst.Name], target: cst.Name, read: cst.Name) -> bool:
    here = source.start(source.statement(read) or read)
    before = [g for g in given if source.start(g) < here]
    if not before or not _covers(source, before[-1], read):
        raise Lost  # given in a branch, or by an earlier turn of the loop
    return before[-1] is target


def _covers(source: Source, given: cst.Name, read: cst.Name) -> bool:
    if isinstance(source.parent(given), cst.Param):
        return True
    line = source.statement(given)
    block = source.parent(line) if line is not None else None
    if block is None:  # `for x in ...`, `with ... as x`
        kinds = (cst.For, cst.CompFor, cst.With)
        block = next((a for a in source.ancestors(given) if isinstance(a, kinds)), None)
    return block in list(source.ancestors(read))


def _changes(source: Source, read: cst.Name) -> bool:
    """`p.clamp_(...)`, `p[0] = ...`."""
    above = source.parent(read)
    if isinstance(above, cst.Attribute):
        return above.attr.value.endswith("_")
    return isinstance(above, cst.Subscript) and isinstance(
        source.parent(above), (cst.AssignTarget, cst.AugAssign)
    )
