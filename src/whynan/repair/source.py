"""One source file as a concrete-syntax tree: the recorded expression, and what names stand for.

The names are followed in the other tree (`source/names.py`); a place in the text joins the two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from whynan.model import Site
from whynan.source.bindings import Binding
from whynan.source.names import Names, names_of
from whynan.source.trees import characters, parsed, statement_at

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
        self.tree = parsed(text)  # this one is followed, the other one is changed
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        self._ranges = cast(Mapping[cst.CSTNode, CodeRange], wrapper.resolve(PositionProvider))
        self._parents = cast(Mapping[cst.CSTNode, cst.CSTNode], wrapper.resolve(ParentNodeProvider))

    # ---- finding ----------------------------------------------------------------------

    def expression_at(self, site: Site) -> Expression | None:
        """The expression that stands exactly there; else the statement's own value."""
        wanted = ((site.line, site.column), (site.end_line, site.end_column))
        if (found := self._between(wanted)) is not None:
            return found
        for augmented in self.every(cst.AugAssign):  # `x += f(y)` is recorded as a whole
            if self._span(self._ranges[augmented]) == wanted:
                return augmented.value
        return None

    def _between(self, wanted: object) -> Expression | None:
        for node, where in self._ranges.items():  # parents come after their children
            if isinstance(node, Expression) and self._span(where) == wanted:
                return node
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

    def span(self, node: cst.CSTNode) -> tuple[tuple[int, int], tuple[int, int]]:
        return self._span(self._ranges[node])

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

    # ---- what names stand for ----------------------------------------------------------------

    @cached_property
    def names(self) -> Names:
        return names_of(self.tree)

    @cached_property
    def _twins(self) -> dict[cst.CSTNode, ast.Name | ast.arg]:
        """The same name in the tree that is followed, by its place in the text."""
        found = {
            self._at(n.lineno, n.col_offset): n
            for n in ast.walk(self.tree)
            if isinstance(n, (ast.Name, ast.arg))
        }
        names = (n for n in self._ranges if isinstance(n, cst.Name))
        return {n: found[at] for n in names if (at := self.start(n)) in found}

    @cached_property
    def _originals(self) -> dict[ast.AST, cst.Name]:
        return {twin: node for node, twin in self._twins.items() if isinstance(node, cst.Name)}

    def _at(self, line: int, offset: int) -> tuple[int, int]:
        return line, characters(self._lines[line - 1], offset)

    def given(self, use: cst.Name) -> Binding | None:
        """What a name holds where it is read."""
        twin = self._twins.get(use)
        return self.names.given(twin) if isinstance(twin, ast.Name) else None

    def binding(self, target: cst.Name) -> Binding | None:
        """What happens where a name gets its value."""
        twin = self._twins.get(target)
        return self.names.bindings.get(twin) if twin is not None else None

    def original(self, node: ast.AST) -> cst.Name | None:
        """Where a name of the followed tree stands in this one."""
        return self._originals.get(node)

    def expression(self, node: ast.expr) -> Expression | None:
        """Where an expression of the followed tree stands in this one."""
        end = self._at(node.end_lineno or 0, node.end_col_offset or 0)
        return self._between((self._at(node.lineno, node.col_offset), end))

    def value_of(self, use: Expression) -> Expression | None:
        """The value last given to a name before its use, if that is certain; what the names in it
        mean may have changed since."""
        found = self._assigned(use)
        return found.value if found is not None else None

    def part_of(self, use: Expression) -> tuple[Expression, int] | None:
        """`f(x)` and 1 for `b` of `a, b = f(x)`; of `a, b = 0, x` the value is `value_of` the name."""
        given = self.given(use) if isinstance(use, cst.Name) else None
        target = self.original(given.node) if given is not None and not given.choices else None
        element = self.parent(target) if target is not None else None
        targets = self.parent(element) if isinstance(element, cst.Element) else None
        left = self.parent(targets) if isinstance(targets, cst.Tuple) else None
        assign = self.parent(left) if isinstance(left, cst.AssignTarget) else None
        if not isinstance(assign, cst.Assign) or not isinstance(targets, cst.Tuple):
            return None
        if len(assign.targets) != 1 or self.scope(assign) is not self.scope(use):
            return None
        return assign.value, targets.elements.index(element)

    def definition(self, use: Expression) -> Expression | None:
        """The value of a name, if the same text would still mean the same at its use."""
        assign = self._assigned(use)
        if assign is None or not self.means_the_same(assign.value, assign, use):
            return None
        return assign.value

    def _assigned(self, use: Expression) -> cst.Assign | None:
        """`name = value` on a line of its own, on every way to the use and nothing else since."""
        given = self.given(use) if isinstance(use, cst.Name) else None
        target = self.original(given.node) if given is not None and given.how == "is" else None
        line = self.statement(target) if target is not None else None
        assign = line.body[0] if line is not None and len(line.body) == 1 else None
        if target is None or line is None or not isinstance(assign, cst.Assign):
            return None
        if len(assign.targets) != 1 or assign.targets[0].target is not target:
            return None
        # A block around it would be another one at the use: `with no_grad()`, a function.
        around = self.parent(line) in list(self.ancestors(use))
        return assign if around and self.scope(target) is self.scope(use) else None

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
        reads = [n for n in (value, *self.below(value)) if n is not besides and n in self._twins]
        names = [n for n in reads if isinstance(n, cst.Name)]
        return all(self.given(n) is self.held(there, n.value) for n in names)

    def held(self, there: cst.CSTNode, name: str) -> Binding | None:
        """What a name holds when the statement begins in which a node stands."""
        line, column = self.start(there)
        offset = len(self._lines[line - 1][:column].encode())
        statement = statement_at(self.tree, line, offset, inner=True)
        return self.names.before(statement, name) if statement is not None else None

    def bindings(self, name: str, scope: cst.CSTNode) -> list[cst.Name]:
        """Every place in a function where a name gets a value."""
        given = (b for b in self.names.bindings.values() if b.place == name and b.how != "changed")
        found = (node for b in given if (node := self.original(b.node)) is not None)
        return sorted((n for n in found if self.scope(n) is scope), key=self.start)

    def other_uses(self, name: str, use: cst.CSTNode) -> list[cst.Name]:
        """Reads of a name in the same function, besides those inside `use`."""
        scope = self.scope(use)
        return [
            n
            for n in self.every(cst.Name, None if scope is self.module else scope)
            if n.value == name and self.reads(n) and n is not use and use not in self.ancestors(n)
        ]

    def reads(self, node: cst.Name) -> bool:
        twin = self._twins.get(node)
        return isinstance(twin, ast.Name) and isinstance(twin.ctx, ast.Load)

    # ---- imports -----------------------------------------------------------------------------

    def torch_name(self) -> str | None:
        """How this file calls torch, if it imported it."""
        return self.imported("torch")

    def functional(self) -> str:
        """How this file calls torch.nn.functional."""
        name = self.imported("torch.nn.functional")
        return name or f"{self.torch_name() or 'torch'}.nn.functional"

    def imported(self, module: str) -> str | None:
        """How this file calls a module; `import torch.nn` gives it torch as well."""
        found = [b for b in self.names.bindings.values() if b.imported == module]
        found.sort(key=lambda b: b.scope is not self.names.module)
        return found[0].place if found else None

    def from_torch(self, name: cst.Name) -> bool:
        """Whether a bare name was imported from torch."""
        given = self.given(name)
        return given is not None and any(b.imported.startswith("torch.") for b in given.sources)
