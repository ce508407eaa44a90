"""Where a number comes from that the user's code names: a literal, perhaps of another file.

`EPS` at the top of a file or imported, `config.EPS`, `self.eps` given to a constructor, a default of
a parameter, a field of a settings class, an entry of a dictionary of settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from whynan.repair.calls import number_of
from whynan.repair.places import Lost, Place, argument_for, class_of, given_by
from whynan.repair.project import Project
from whynan.repair.source import Expression, Source

CASTS = ("float", "int", "float32", "float64", "tensor", "as_tensor")
DEPTH = 6  # names behind names


@dataclass
class Constants:
    """Follows names to the one literal that they stand for."""

    project: Project

    def of(self, source: Source, node: Expression) -> Place | None:
        """The literal number behind an expression; None if there is none, or more than one."""
        try:
            found = {place.node: place for place in self._all(source, node, DEPTH)}
        except Lost:
            return None
        return found.popitem()[1] if len(found) == 1 else None

    def written(self, source: Source, node: Expression) -> Place | None:
        """As `of`, for a number that is written as a formula of literals: `2**17`."""
        try:
            found = {place.node: place for place in self._all(source, node, DEPTH, formula=True)}
        except Lost:
            return None
        return found.popitem()[1] if len(found) == 1 else None

    def value(self, source: Source, node: Expression) -> Place | None:
        """What is written where a name gets its only value."""
        try:
            found = list(self._values(source, node, DEPTH))
        except Lost:
            return None
        return found[0] if len(found) == 1 else None

    def table(self, source: Source, node: Expression) -> tuple[Source, cst.Dict] | None:
        """The dictionary of settings behind `**OPTIMIZER`."""
        for place in self._values(source, node, DEPTH):
            if isinstance(place.node, cst.Dict):
                return place.source, place.node
        return None

    def _all(
        self, source: Source, node: Expression, depth: int, *, formula: bool = False
    ) -> Iterator[Place]:
        if number_of(node) is not None or (formula and _is_formula(node)):
            yield Place(source, node)
            return
        if depth == 0:
            raise Lost
        for place in self._values(source, node, depth):
            assert isinstance(place.node, Expression)
            yield from self._all(place.source, place.node, depth - 1, formula=formula)

    def _values(self, source: Source, node: Expression, depth: int) -> Iterator[Place]:
        """What is written where the name gets its value."""
        if isinstance(node, cst.Name):
            yield from self._of_name(source, node, depth)
        elif isinstance(node, cst.Attribute):
            yield from self._of_attribute(source, node)
        elif isinstance(node, cst.Subscript):
            yield from self._of_entry(source, node)
        elif isinstance(node, cst.Call) and len(node.args) in (1, 2):
            name, first = source.code(node.func).split(".")[-1], node.args[0].value
            if name == "get" and isinstance(first, cst.SimpleString):  # `cfg.get("lr", 0.1)`
                yield from self._settings(str(first.evaluated_value))
            elif name in CASTS and len(node.args) == 1:
                yield Place(source, first)

    def _of_name(self, source: Source, name: cst.Name, depth: int) -> Iterator[Place]:
        given = source.bindings(name.value, source.scope(name))
        given = given or source.bindings(name.value, source.module)
        if not given:
            yield from self._imported(source, name.value)
            return
        if len(given) != 1:
            raise Lost
        above = source.parent(given[0])
        if isinstance(above, cst.Param):
            yield from self.given_for(source, above)
            return
        value = _given_value(source, given[0])
        if value is not None:
            yield Place(source, value)

    def _imported(self, source: Source, name: str) -> Iterator[Place]:
        """`from config import EPS`."""
        for binding in source.names.bindings.values():
            if binding.place == name and "." in binding.imported:
                module, _, original = binding.imported.rpartition(".")
                home = self._file(source, module)
                yield from _at_the_top(home, original) if home is not None else ()

    def given_for(self, source: Source, parameter: cst.Param) -> Iterator[Place]:
        """What the calls give for it, and its default where one gives nothing."""
        function = source.scope(parameter)
        if not isinstance(function, cst.FunctionDef):
            raise Lost
        place, owner = Place(source, function), class_of(source, function)
        for call in self._calls(place, owner):
            given = argument_for(call, place, int(owner is not None), parameter.name.value)
            if given is not None:
                yield Place(call.source, given)
            elif isinstance(call.node, cst.Call) and any(a.star == "**" for a in call.node.args):
                yield from self._settings(parameter.name.value)  # `Net(**spec)`
            elif parameter.default is not None:
                yield Place(source, parameter.default)
            else:
                raise Lost

    def from_caller(self, source: Source, name: cst.CSTNode) -> Place | None:
        """What the one call of the function gives, where a name is its parameter."""
        given = source.given(name) if isinstance(name, cst.Name) else None
        target = source.original(given.node) if given is not None else None
        parameter = source.parent(target) if target is not None else None
        try:
            places = (
                [*self.given_for(source, parameter)] if isinstance(parameter, cst.Param) else []
            )
        except Lost:
            return None
        return places[0] if len(places) == 1 else None

    def _calls(self, function: Place, owner: cst.ClassDef | None) -> list[Place]:
        assert isinstance(function.node, cst.FunctionDef)
        if owner is None or function.node.name.value != "__init__":
            return self.project.calls_of(function)
        uses = self.project.uses_of(function.source, owner)
        return [
            Place(use.source, use.above)
            for use in uses
            if isinstance(use.above, cst.Call) and use.above.func is use.node
        ]

    def _of_attribute(self, source: Source, node: cst.Attribute) -> Iterator[Place]:
        """`config.EPS` of a module, `self.eps` of this class, `settings.eps` of any."""
        name, owner = node.attr.value, source.code(node.value)
        home = self._module(source, owner)
        if home is not None:
            yield from _at_the_top(home, name)
        elif owner == "self":
            around = next((a for a in source.ancestors(node) if isinstance(a, cst.ClassDef)), None)
            for assign in source.every(cst.Assign, around):
                for target, value in given_by(assign):
                    if source.code(target) == f"self.{name}":
                        yield Place(source, value)
            yield from _fields(source, name, around)
        else:
            yield from self._settings(name)

    def _of_entry(self, source: Source, node: cst.Subscript) -> Iterator[Place]:
        """`CONFIG["eps"]`."""
        key = source.code(node.slice[0]).strip("'\"") if node.slice else ""
        found = self.table(source, node.value)
        if found is not None:
            yield from (Place(found[0], e.value) for e in entries_of(found[1], key))
        else:
            yield from self._settings(key)

    def setting_of(self, name: str, value: float) -> Place | None:
        """The one place in the project where a setting of that name has that value."""
        found = [p for p in self._settings(name) if number_of(p.node) == value]
        return found[0] if len(found) == 1 else None

    def _settings(self, name: str) -> Iterator[Place]:
        """Fields, keywords and entries of that name, wherever the project has them."""
        for source in self.project.mentioning(name):
            yield from _fields(source, name, None)
            for table in source.every(cst.Dict):
                yield from (Place(source, e.value) for e in entries_of(table, name))
            for call in source.every(cst.Call):
                yield from _default_of_option(source, call, name)
                if source.code(call.func).split(".")[-1] in ("Namespace", "SimpleNamespace"):
                    for arg in call.args:
                        if arg.keyword is not None and arg.keyword.value == name:
                            yield Place(source, arg.value)
        for file in self.project.settings():
            yield from (Place(file, node) for node in file.numbers(name))

    def _module(self, source: Source, name: str) -> Source | None:
        """A file of the user's own that this one imports under a name."""
        found = (b.imported for b in source.names.bindings.values() if b.place == name)
        imported = next(filter(None, found), None)
        return self._file(source, imported) if imported is not None else None

    def _file(self, source: Source, module: str) -> Source | None:
        root = Path(self.project.case.root or os.getcwd())
        for folder in (Path(source.path).parent, root):
            file = folder / (module.strip(".").replace(".", "/") + ".py")
            if file.is_file() and self.project.case.is_own(str(file)):
                return self.project.source(str(file))
        return None


def _is_formula(node: Expression) -> bool:
    if isinstance(node, cst.BinaryOperation):
        return _is_formula(node.left) and _is_formula(node.right)
    return number_of(node) is not None


def entries_of(table: cst.Dict, key: str) -> list[cst.DictElement]:
    return [
        e
        for e in table.elements
        if isinstance(e, cst.DictElement)
        and isinstance(e.key, cst.SimpleString)
        and e.key.evaluated_value == key
    ]


def _default_of_option(source: Source, call: cst.Call, name: str) -> Iterator[Place]:
    """`parser.add_argument("--lr", default=0.1)`."""
    option = call.args[0].value if call.args else None
    if not source.code(call.func).endswith(".add_argument"):
        return
    if not isinstance(option, cst.SimpleString) or not isinstance(option.evaluated_value, str):
        return
    if option.evaluated_value.lstrip("-").replace("-", "_") == name:
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == "default":
                yield Place(source, arg.value)


def _at_the_top(source: Source, name: str) -> Iterator[Place]:
    for target in source.bindings(name, source.module):
        value = _given_value(source, target)
        if value is not None:
            yield Place(source, value)


def _given_value(source: Source, target: cst.Name) -> Expression | None:
    """The right side of `name = value`, also of `a, b = 1, 2`."""
    above = source.parent(target)
    if isinstance(above, cst.Element):
        return _element(source, above)
    above = source.parent(above) if isinstance(above, cst.AssignTarget) else above
    return above.value if isinstance(above, (cst.Assign, cst.AnnAssign)) else None


def _element(source: Source, element: cst.Element) -> Expression | None:
    """What stands at the same place on the right side."""
    targets = source.parent(element)
    left = source.parent(targets) if isinstance(targets, cst.Tuple) else None
    assign = source.parent(left) if left is not None else None
    values = assign.value if isinstance(assign, cst.Assign) else None
    if not isinstance(targets, cst.Tuple) or not isinstance(values, cst.Tuple):
        return None
    if len(values.elements) != len(targets.elements):
        return None
    return values.elements[targets.elements.index(element)].value


def _fields(source: Source, name: str, within: cst.ClassDef | None) -> Iterator[Place]:
    """`eps: float = 1e-8` or `eps = 1e-8` in the body of a class."""
    fields: list[tuple[cst.CSTNode, Expression, Expression | None]] = []
    fields += [(f, f.target, f.value) for f in source.every(cst.AnnAssign, within)]
    fields += [(f, f.targets[0].target, f.value) for f in source.every(cst.Assign, within)]
    for field, target, value in fields:
        line = source.parent(field)
        owner = class_of(source, line) if line is not None else None
        named = isinstance(target, cst.Name) and target.value == name
        if named and owner is not None and within in (None, owner) and value is not None:
            yield Place(source, value)
