"""Where a module is run: from the expression that makes it to every call of what was made."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from whynan.repair.places import Lost, Place, argument_for, reads_of, target_of
from whynan.repair.project import ONLY_LOOKS, SAME_MODULE, WRAPPERS, Project
from whynan.repair.source import Source


@dataclass
class Instances:
    """Follows a module through variables, attributes and parameters."""

    project: Project
    calls: list[Place] = field(default_factory=list)
    _seen: set[cst.CSTNode] = field(default_factory=set)
    _parameters: list[tuple[Place, int, str]] = field(default_factory=list)

    def of_class(self, owner: Place) -> list[Place]:
        """Every run of a class's instances, `self(...)` in its own methods among them."""
        source, definition = owner.source, owner.node
        assert isinstance(definition, cst.ClassDef)
        for use in self.project.uses_of(source, definition):
            above = use.above
            if isinstance(above, cst.Call) and above.func is use.node:
                self._made(use.source, above)
            elif not isinstance(above, cst.Annotation) and not self._only_looked_at(use):
                raise Lost  # a subclass, or the class as a value
        for call in source.every(cst.Call, definition):
            if source.code(call.func) in ("self", "self.forward"):
                self.calls.append(Place(source, call))
        return self._checked()

    def of_expression(self, source: Source, made: cst.Call) -> list[Place]:
        """Every run of what one expression makes: `nn.Sequential(...)`."""
        self._made(source, made)
        return self._checked()

    def _checked(self) -> list[Place]:
        """A function that is given other modules as well runs those in the same place."""
        for function, skipped, name in self._parameters:
            for call in self.project.calls_of(function):
                given = argument_for(call, function, skipped, name)
                if given is None or given not in self._seen:
                    raise Lost
        unique = {place.node: place for place in self.calls}
        return list(unique.values())

    def _made(self, source: Source, made: cst.CSTNode) -> None:
        if made in self._seen:
            return
        self._seen.add(made)
        above = source.parent(made)
        if isinstance(above, cst.Attribute):
            self._attribute(source, above)
        elif isinstance(above, cst.Call) and above.func is made:
            self.calls.append(Place(source, above))
        elif isinstance(above, cst.Assign) and above.value is made and len(above.targets) == 1:
            self._assigned(source, above.targets[0].target)
        elif isinstance(above, cst.Element) and (target := target_of(source, above)) is not None:
            self._assigned(source, target)
        elif isinstance(above, cst.Arg):
            self._given(source, made, above)
        elif isinstance(above, cst.Return):
            for call in self.project.callers(source, above):  # of a function that builds it
                self._made(call.source, call.node)
        elif not isinstance(above, cst.Expr) and not _is_layer(above):
            raise Lost

    def _attribute(self, source: Source, attribute: cst.Attribute) -> None:
        """`net.to(device)` is the module again; `net.forward(x)` a run; `net.parameters()` neither."""
        name = attribute.attr.value
        call = source.parent(attribute)
        called = isinstance(call, cst.Call) and call.func is attribute
        if name.startswith("register_") or (name in ("forward", "__call__") and not called):
            raise Lost  # a hook sees the result
        if not called or call is None:
            return
        if name in SAME_MODULE:
            self._made(source, call)
        elif name in ("forward", "__call__"):
            self.calls.append(Place(source, call))

    def _assigned(self, source: Source, target: cst.CSTNode) -> None:
        if isinstance(target, cst.Name):
            if source.scope(target) is source.module:
                self._refuse_imports_of(source, target.value)
            for read in reads_of(source, target):
                self._made(source, read.node)
        elif isinstance(target, cst.Attribute):
            for other in self.project.mentioning(target.attr.value):
                for attribute in other.every(cst.Attribute):
                    if attribute.attr.value != target.attr.value or attribute is target:
                        continue
                    if isinstance(other.parent(attribute), cst.AssignTarget):
                        raise Lost  # something else is put there, too
                    self._made(other, attribute)
        else:
            raise Lost

    def _refuse_imports_of(self, home: Source, name: str) -> None:
        for source in self.project.mentioning(name):
            for alias in source.every(cst.ImportAlias):
                if source is not home and source.code(alias.name) == name:
                    raise Lost

    def _given(self, source: Source, made: cst.CSTNode, arg: cst.Arg) -> None:
        call = source.parent(arg)
        if not isinstance(call, cst.Call):
            raise Lost
        callee = source.code(call.func).split(".")[-1]
        if callee in WRAPPERS or (callee == "Sequential" and call.args[-1] is arg):
            self._made(source, call)
        elif callee not in ONLY_LOOKS:
            found = self.project.handed(source, arg)
            if found is None:
                raise Lost
            function, skipped, name = found
            self._parameters.append((function, skipped, name.value))
            for read in reads_of(function.source, name):
                self._made(function.source, read.node)

    @staticmethod
    def _only_looked_at(use: Place) -> bool:
        call = use.source.parent(use.above) if isinstance(use.above, cst.Arg) else None
        return isinstance(call, cst.Call) and use.source.code(call.func) in ONLY_LOOKS


def _is_layer(above: cst.CSTNode | None) -> bool:
    """`net[0]`; counted from the end it would be another one when the last is gone."""
    if not isinstance(above, cst.Subscript) or len(above.slice) != 1:
        return False
    index = above.slice[0].slice
    return isinstance(index, cst.Index) and isinstance(index.value, cst.Integer)
