"""One source file as a concrete-syntax tree: the recorded expression, and what names stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from whynan.model import Site

Expression = cst.BaseExpression
N = TypeVar("N", bound=cst.CSTNode)
QUOTED = 40  # characters of source in a sentence
ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float, cst.List)


class Source:
    """A parsed file with positions and parents."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.module = cst.parse_module(text)
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        self._ranges = cast(Mapping[cst.CSTNode, CodeRange], wrapper.resolve(PositionProvider))
        self._parents = cast(Mapping[cst.CSTNode, cst.CSTNode], wrapper.resolve(ParentNodeProvider))

    # ---- finding ----------------------------------------------------------------------

    def expression_at(self, site: Site) -> Expression | None:
        """The expression that stands exactly there; else the statement's own value."""
        wanted = ((site.line, site.column), (site.end_line, site.end_column))
        for node, where in self._ranges.items():  # parents come after their children
            if isinstance(node, Expression) and self._span(where) == wanted:
                return node
        for augmented in self.every(cst.AugAssign):  # `x += f(y)` is recorded as a whole
            if self._span(self._ranges[augmented]) == wanted:
                return augmented.value
        return None

    @staticmethod
    def _span(where: CodeRange) -> tuple[tuple[int, int], tuple[int, int]]:
        return (where.start.line, where.start.column), (where.end.line, where.end.column)

    def every(self, kind: type[N], within: cst.CSTNode | None = None) -> list[N]:
        """All nodes of a kind, in the order of the source."""
        nodes = self._ranges if within is None else self.below(within)
        return sorted((n for n in nodes if isinstance(n, kind)), key=self.start)

    @staticmethod
    def below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """All that a node consists of."""
        waiting = list(node.children)
        while waiting:
            below = waiting.pop()
            yield below
            waiting.extend(below.children)

    def start(self, node: cst.CSTNode) -> tuple[int, int]:
        where = self._ranges[node]
        return where.start.line, where.start.column

    def line(self, node: cst.CSTNode) -> int:
        return self._ranges[node].start.line

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function around a node, or the module."""
        kinds = (cst.FunctionDef, cst.Lambda)
        return next((a for a in self.ancestors(node) if isinstance(a, kinds)), self.module)

    def statement(self, node: cst.CSTNode) -> cst.SimpleStatementLine | None:
        lines = (a for a in self.ancestors(node) if isinstance(a, cst.SimpleStatementLine))
        return next(lines, None)

    def code(self, node: cst.CSTNode) -> str:
        """As typed."""
        return self.module.code_for_node(node).strip()

    def receiver(self, node: Expression) -> str:
        """As typed, in parentheses if a method call on it needs them."""
        text = self.code(node)
        return text if isinstance(node, ATOMS[:4]) or node.lpar else f"({text})"

    def quoted(self, node: cst.CSTNode, otherwise: str) -> str:
        """As typed in backticks, for a sentence; what is long is `otherwise`, in its line."""
        bare = node.with_changes(lpar=(), rpar=()) if isinstance(node, Expression) else node
        text = " ".join(self.code(bare).split())
        return f"`{text}`" if len(text) <= QUOTED else f"{otherwise} in line {self.line(node)}"

    def same(self, a: cst.CSTNode, b: cst.CSTNode) -> bool:
        return a.deep_equals(b) or self.code(a) == self.code(b)

    # ---- dataflow inside one function ----------------------------------------------------

    def definition(self, use: Expression) -> Expression | None:
        """The value last given to a name before its use, if that is certain."""
        found = self.definition_statement(use)
        return found[1] if found is not None else None

    def definition_statement(
        self, use: Expression
    ) -> tuple[cst.SimpleStatementLine, Expression] | None:
        if not isinstance(use, cst.Name):
            return None
        target = self.binding_before(use)
        if target is None or target is use:
            return None
        line = self.statement(target)
        if line is None or len(line.body) != 1:
            return None
        assign = line.body[0]
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            return None
        if assign.targets[0].target is not target:
            return None
        if self.parent(line) not in list(self.ancestors(use)):
            return None  # given in a branch that need not have run
        if self._changed_between(assign.value, line, use):
            return None  # the same text would mean something else at the use
        return line, assign.value

    def binding_before(self, use: cst.Name) -> cst.Name | None:
        """Where a name last got a value before a use of it, in the order of the source."""
        here = self.start(self.statement(use) or use)
        given = self.bindings(use.value, self.scope(use))
        return next((t for t in reversed(given) if self.start(t) < here), None)

    def means_the_same(
        self,
        value: Expression,
        here: cst.CSTNode,
        there: cst.CSTNode,
        besides: cst.CSTNode | None = None,
    ) -> bool:
        """Whether what is written `here` could be written at a later place as well, with something
        else in place of `besides`."""
        if self.scope(here) is not self.scope(there):
            return False
        return not self._changed_between(value, self.statement(here) or here, there, besides)

    def _changed_between(
        self,
        value: Expression,
        line: cst.CSTNode,
        use: cst.CSTNode,
        besides: cst.CSTNode | None = None,
    ) -> bool:
        """Whether a name in `value`, or the name it was given to, is written before its use."""
        nodes = [value, *self.below(value)]
        names = {n.value for n in nodes if isinstance(n, cst.Name) and n is not besides}
        if isinstance(use, cst.Name):
            names.add(use.value)
        here = self.statement(use) or use
        scope = self.scope(use)
        first, last = self.start(line), self.start(here)
        for name in names:
            if any(first < self.start(b) < last for b in self.bindings(name, scope)):
                return True
        for node in self.every(cst.Subscript) + self.every(cst.Call):
            if first < self.start(node) < last and self._writes(node, names):
                return True
        return False

    def _writes(self, node: cst.Subscript | cst.Call, names: set[str]) -> bool:
        """`x[i] = 0`, `x.mul_(2)`."""
        if isinstance(node, cst.Subscript):
            target = isinstance(self.parent(node), (cst.AssignTarget, cst.AugAssign))
            return target and isinstance(node.value, cst.Name) and node.value.value in names
        func = node.func
        inplace = isinstance(func, cst.Attribute) and func.attr.value.endswith("_")
        return (
            inplace
            and isinstance(func, cst.Attribute)
            and isinstance(func.value, cst.Name)
            and func.value.value in names
        )

    def bindings(self, name: str, scope: cst.CSTNode) -> list[cst.Name]:
        """Every place in a function where a name gets a value."""
        found = []
        for node in self.every(cst.Name, None if scope is self.module else scope):
            if node.value == name and self.scope(node) is scope and self._binds(node):
                found.append(node)
        return found

    def _binds(self, node: cst.Name) -> bool:
        above: cst.CSTNode | None = self.parent(node)
        if isinstance(above, cst.Param):
            return above.name is node
        while isinstance(above, (cst.Element, cst.Tuple, cst.List, cst.StarredElement)):
            above = self.parent(above)
        return isinstance(above, (cst.AssignTarget, cst.AsName)) or (
            isinstance(above, (cst.AugAssign, cst.AnnAssign, cst.For, cst.CompFor, cst.NamedExpr))
            and above.target is not None
            and (above.target is node or node in self.every(cst.Name, above.target))
        )

    def other_uses(self, name: str, use: cst.CSTNode) -> list[cst.Name]:
        """Reads of a name in the same function, besides those inside `use`."""
        scope = self.scope(use)
        return [
            n
            for n in self.every(cst.Name, None if scope is self.module else scope)
            if n.value == name and self.reads(n) and n is not use and use not in self.ancestors(n)
        ]

    def reads(self, node: cst.Name) -> bool:
        above = self.parent(node)
        if isinstance(above, cst.Arg):
            return above.keyword is not node
        if isinstance(above, cst.Attribute):
            return above.value is node
        return not self._binds(node)

    # ---- names ---------------------------------------------------------------------------

    def torch_name(self) -> str | None:
        """How this file calls torch, if it imported it."""
        return self.imported("torch")

    def functional(self) -> str:
        """How this file calls torch.nn.functional."""
        for statement in self.every(cst.ImportFrom):
            module = self.code(statement.module) if statement.module else ""
            if module == "torch.nn" and not isinstance(statement.names, cst.ImportStar):
                for alias in statement.names:
                    if self.code(alias.name) == "functional":
                        return self.code(alias.asname.name) if alias.asname else "functional"
        return (
            self.imported("torch.nn.functional") or f"{self.torch_name() or 'torch'}.nn.functional"
        )

    def imported(self, module: str) -> str | None:
        """How this file calls a module; `import torch.nn` gives it torch as well."""
        for statement in self.every(cst.Import):
            for alias in statement.names:
                name = self.code(alias.name)
                if name == module and alias.asname:
                    return self.code(alias.asname.name)
                if name == module or (not alias.asname and name.startswith(f"{module}.")):
                    return module
        return None

    def from_torch(self, name: str) -> bool:
        """Whether a bare name was imported from torch."""
        for statement in self.every(cst.ImportFrom):
            module = self.code(statement.module) if statement.module else ""
            if module.split(".")[0] == "torch" and not isinstance(statement.names, cst.ImportStar):
                for alias in statement.names:
                    bound = alias.asname.name if alias.asname else alias.name
                    if self.code(bound) == name:
                        return True
        return False
