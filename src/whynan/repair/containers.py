"""A value that is handed on as an entry of a dictionary or a field of a result: where that is read."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from whynan.repair.places import Lost, Place, argument_for, reads_of
from whynan.repair.project import ONLY_LOOKS, Project
from whynan.repair.source import Expression, Source

PLAIN = frozenset({"dict", "SimpleNamespace"})  # made of whatever keywords are given
FIELDS = frozenset({"NamedTuple", "dataclass"})  # of a class that is nothing but its fields


@dataclass(frozen=True)
class Entry:
    """The expression that makes a container, and under which name the value is in it."""

    place: Place
    name: str
    keys: tuple[Place, ...]  # where that is written


def entry_of(project: Project, source: Source, node: Expression) -> Entry | None:
    """`{"probs": p}`, `dict(probs=p)`, `Output(p)` with p as the node."""
    above = source.parent(node)
    outer = source.parent(above) if above is not None else None
    if isinstance(above, cst.DictElement) and above.value is node:
        name = _text(above.key)
        keys = (Place(source, above.key),)
        return Entry(Place(source, outer), name, keys) if name and outer is not None else None
    if not isinstance(above, cst.Arg) or not isinstance(outer, cst.Call):
        return None
    if source.code(outer.func).split(".")[-1] in PLAIN and above.keyword is not None:
        return Entry(Place(source, outer), above.keyword.value, (Place(source, above.keyword),))
    declared = _field(project, source, outer, above)
    if declared is None:
        return None
    assert isinstance(declared.node, cst.Name)
    keyword = () if above.keyword is None else (Place(source, above.keyword),)
    return Entry(Place(source, outer), declared.node.value, (declared, *keyword))


def _field(project: Project, source: Source, call: cst.Call, arg: cst.Arg) -> Place | None:
    """Of a class that only has fields, in their order."""
    owner = project.class_named(source, call.func)
    if owner is None or not isinstance(owner.node, cst.ClassDef):
        return None
    code = owner.source.code
    bases = [code(b.value) for b in owner.node.bases] + [code(d.decorator) for d in owner.node.decorators]  # fmt: skip
    if not {s.split("(")[0].split(".")[-1] for s in bases} & FIELDS:
        return None
    lines = [s.body[0] for s in owner.node.body.body if isinstance(s, cst.SimpleStatementLine)]
    names = [a.target for a in lines if isinstance(a, cst.AnnAssign) and isinstance(a.target, cst.Name)]  # fmt: skip
    if arg.keyword is not None:
        said = [n for n in names if n.value == arg.keyword.value]
    else:
        at = list(call.args).index(arg)
        said = [] if any(a.star for a in call.args) else names[at : at + 1]
    return Place(owner.source, said[0]) if said else None


def _text(key: cst.CSTNode) -> str:
    value = key.evaluated_value if isinstance(key, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


@dataclass
class Container:
    """Follows a dictionary or a result to every place that reads one of its entries."""

    project: Project
    name: str
    found: list[Place] = field(default_factory=list)
    keys: list[Place] = field(default_factory=list)  # where the name is written
    _seen: set[cst.CSTNode] = field(default_factory=set)
    _parameters: list[tuple[Place, int, str]] = field(default_factory=list)

    def reads(self, entry: Entry) -> list[Place]:
        """`Lost` where the source does not show all of them."""
        assert isinstance(entry.place.node, Expression)
        self.keys += entry.keys
        self._made(entry.place.source, entry.place.node)
        for function, skipped, name in self._parameters:
            for call in self.project.calls_of(function):
                if argument_for(call, function, skipped, name) not in self._seen:
                    raise Lost
        return self.found

    def _made(self, source: Source, node: Expression) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        above = source.parent(node)
        if isinstance(above, cst.Return):
            for call in self.project.callers(source, above):
                assert isinstance(call.node, Expression)
                self._made(call.source, call.node)
        elif isinstance(above, cst.Assign) and above.value is node and len(above.targets) == 1:
            target = above.targets[0].target
            if not isinstance(target, cst.Name):
                raise Lost
            for read in reads_of(source, target):
                assert isinstance(read.node, cst.Name)
                self._made(source, read.node)
        elif isinstance(above, cst.Subscript) and above.value is node:
            self._subscript(source, above)
        elif isinstance(above, cst.Attribute):
            self._attribute(source, above)
        elif isinstance(above, cst.Arg):
            self._given(source, above)
        elif not isinstance(above, cst.Expr):
            raise Lost

    def _subscript(self, source: Source, read: cst.Subscript) -> None:
        index = read.slice[0].slice if len(read.slice) == 1 else None
        key = _text(index.value) if isinstance(index, cst.Index) else ""
        if not key or isinstance(source.parent(read), (cst.AssignTarget, cst.AugAssign, cst.Del)):
            raise Lost
        if key == self.name and isinstance(index, cst.Index):
            self.found.append(Place(source, read))
            self.keys.append(Place(source, index.value))

    def _attribute(self, source: Source, read: cst.Attribute) -> None:
        call = source.parent(read)
        if isinstance(call, (cst.AssignTarget, cst.AugAssign)):
            raise Lost
        if isinstance(call, cst.Call) and call.func is read:
            key = _text(call.args[0].value) if len(call.args) == 1 else ""
            if read.attr.value != "get" or not key:
                raise Lost  # `.items()` shows them all
            if key == self.name:
                self.found.append(Place(source, call))
                self.keys.append(Place(source, call.args[0].value))
        elif read.attr.value == self.name:
            self.found.append(Place(source, read))
            self.keys.append(Place(source, read.attr))

    def _given(self, source: Source, arg: cst.Arg) -> None:
        call = source.parent(arg)
        if not isinstance(call, cst.Call):
            raise Lost
        if source.code(call.func) in ONLY_LOOKS - {"print", "save"}:
            return
        found = self.project.handed(source, arg)
        if found is None:
            raise Lost
        function, skipped, name = found
        self._parameters.append((function, skipped, name.value))
        for read in reads_of(function.source, name):
            assert isinstance(read.node, cst.Name)
            self._made(function.source, read.node)
