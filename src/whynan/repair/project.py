"""The user's files together: where a function is called, a module is run, a name is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import libcst as cst

from whynan.ops.table import that
from whynan.repair.case import Case
from whynan.repair.originals import MAX_FILES, files_below, python_files
from whynan.repair.places import Lost, Place, argument_for, class_of, parameter_for, returned
from whynan.repair.settings import ENDINGS, Settings
from whynan.repair.source import Expression, Source

MAX_SETTINGS = 60  # files
MAX_BYTES = 200_000
SAME_MODULE = that("casts") | {"eval", "train", "requires_grad_"}
WRAPPERS = frozenset({"compile", "DataParallel", "DistributedDataParallel"})
ONLY_LOOKS = frozenset({"print", "len", "id", "type", "isinstance", "super", "save"})
STILL_ITSELF = frozenset({"no_grad", "inference_mode", "enable_grad", "compile"})  # decorators


@dataclass
class Project:
    """Own files, each parsed once, so that their nodes can be compared."""

    case: Case
    _sources: dict[str, Source | None] = field(default_factory=dict)
    _texts: dict[str, str] | None = None
    _settings: list[Settings] | None = None

    def source(self, path: str) -> Source | None:
        path = os.path.realpath(path)
        if path not in self._sources:
            self._sources[path] = self.case.source_of(path)
        return self._sources[path]

    def mentioning(self, name: str) -> Iterator[Source]:
        """The files in which a word occurs, be it as an option: `--weight-decay`."""
        word = re.compile(rf"\b{re.escape(name).replace('_', '[_-]')}\b")
        for path, text in self._all_texts().items():
            if word.search(text):
                source = self.source(path)
                if source is not None:
                    yield source
                elif _is_python(text):
                    raise Lost

    def everything(self) -> Iterator[Source]:
        """All files of the program's folder."""
        for path in self._all_texts():
            source = self.source(path)
            if source is not None:
                yield source

    def settings(self) -> Iterator[Settings]:
        """Files of settings that are no Python, if they are few and small."""
        if self._settings is None:
            root = self.case.root or os.getcwd()
            self._settings = []
            for path in islice(files_below(root, ENDINGS), MAX_SETTINGS):
                text = self.case.texts.get(path)
                if text is None and os.path.getsize(path) <= MAX_BYTES:
                    text = self.case.originals.text(path)
                if text is not None and "\r" not in text:
                    self._settings.append(Settings(path, text))
            said = "\n".join(self._all_texts().values()) if len(self._settings) > 1 else ""
            named = [f for f in self._settings if os.path.basename(f.path) in said]
            self._settings = named or self._settings  # of several, those that the program names
        yield from self._settings

    def _all_texts(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = {}
            for path in python_files(self.case.root or os.getcwd()):
                if len(self._texts) == MAX_FILES:
                    raise Lost
                text = self.case.texts.get(path) or self.case.originals.text(path)
                if text is not None:  # what Python itself cannot read, the program did not run
                    self._texts[path] = text
        return self._texts

    # ---- functions ------------------------------------------------------------------------

    def function(self, source: Source, callee: Expression) -> tuple[Place, int] | None:
        """The user's own function behind a callee, and how many parameters come before the first."""
        made: Expression | None = callee
        if isinstance(callee, cst.Name):
            made = source.definition(callee) or self._module_level(source, callee)
        if isinstance(made, cst.Call) and isinstance(made.func, cst.Name):  # `FocalLoss()`
            owner = self._defined(source, made.func.value, cst.ClassDef)
            return self._method(owner, "forward") if owner else None
        if isinstance(callee, cst.Name):
            given = source.bindings(callee.value, source.scope(callee))
            if len(given) == 1 and isinstance(source.parent(given[0]), cst.Param):
                return self._handed_in(source, callee)
            found = self._defined(source, callee.value, cst.FunctionDef)
            if found is None and (owner := self._defined(source, callee.value, cst.ClassDef)):
                return self._method(owner, "__init__")  # `Trainer(net)`
            return (found, 0) if found is not None else None
        if isinstance(callee, cst.Attribute) and source.code(callee.value) == "self":
            return self._of_self(source, callee)
        return None

    def callers(self, source: Source, statement: cst.Return) -> list[Place]:
        """The calls of the function that returns this and nothing else."""
        function = Place(source, source.scope(statement))
        returned(function)
        return self.calls_of(function)

    def handed(self, source: Source, arg: cst.Arg) -> tuple[Place, int, cst.Name] | None:
        """The user's own function that is given this argument, and the parameter that it becomes."""
        call = source.parent(arg)
        found = self.function(source, call.func) if isinstance(call, cst.Call) else None
        if found is None or not isinstance(call, cst.Call):
            return None
        name = parameter_for(found, call, arg)
        return None if name is None else (*found, name)

    def class_named(self, source: Source, callee: Expression) -> Place | None:
        """The user's own class of that name."""
        if not isinstance(callee, cst.Name):
            return None
        return self._defined(source, callee.value, cst.ClassDef)

    def _of_self(self, source: Source, callee: cst.Attribute) -> tuple[Place, int] | None:
        """`self.loss(...)`: a method, or a module that the class keeps under that name."""
        classes = [a for a in source.ancestors(callee) if isinstance(a, cst.ClassDef)]
        if not classes:
            return None
        found = self._method(Place(source, classes[0]), callee.attr.value)
        kept = [
            assign.value
            for assign in source.every(cst.Assign, classes[0])
            if source.code(assign.targets[0].target) == source.code(callee)
        ]
        if found is None and len(kept) == 1 and isinstance(kept[0], cst.Call):
            return self.function(source, kept[0])
        return found if not kept else None

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
        if name == "__init__":
            return self._constructions(owner)
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

    def _constructions(self, owner: Place) -> list[Place]:
        """`Trainer(...)`, everywhere; of a subclass it is not known what it hands on."""
        assert isinstance(owner.node, cst.ClassDef)
        calls = []
        for use in self.uses_of(owner.source, owner.node):
            if isinstance(use.above, cst.Call) and use.above.func is use.node:
                calls.append(Place(use.source, use.above))
            elif not isinstance(use.above, cst.Annotation):
                raise Lost
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
                if node.value != name or above is definition or isinstance(above, cst.ImportFrom):
                    continue  # `from objective import objective`: the file of that name
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


def _is_python(text: str) -> bool:
    """Of a file that does not even compile, as one for Python 2, nothing is run."""
    try:
        compile(text, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


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
