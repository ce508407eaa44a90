"""Changes to one source: made in one pass over the tree, everything else as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import libcst as cst

from whynan.repair.leftovers import unread
from whynan.repair.settings import Settings
from whynan.repair.source import ATOMS, Expression, Source

# Beside these a new expression needs parentheses of its own unless it is a call or a name.
TIGHT = (cst.BinaryOperation, cst.UnaryOperation, cst.Attribute, cst.Subscript, cst.Comparison)
IMPORTED = ("torch", "math")  # the modules that rewrites use
STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


class Edit:
    """Changes to one source, all made in one pass over the tree."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._replaced: dict[cst.CSTNode, str] = {}
        self._before: dict[cst.CSTNode, list[str]] = {}
        self._after: dict[cst.CSTNode, list[str]] = {}
        self._removed: set[cst.CSTNode] = set()
        self._inlined: set[cst.CSTNode] = set()
        self._blocks: dict[cst.CSTNode, str] = {}
        self._decorators: dict[cst.CSTNode, str] = {}

    def replace(self, node: Expression, text: str) -> Edit:
        self._replaced[node] = text
        return self

    def inline(self, values: Iterable[cst.CSTNode]) -> Edit:
        """The new text says what these say: where only it needed them, they go."""
        self._inlined.update(values)
        return self

    def is_nested(self) -> bool:
        """Whether a change lies inside another one, which would swallow it."""
        return any(
            above in self._replaced
            for node in self._replaced
            for above in self.source.ancestors(node)
        )

    def before(self, line: cst.CSTNode, *statements: str) -> Edit:
        self._before.setdefault(line, []).extend(statements)
        return self

    def after(self, line: cst.CSTNode, *statements: str) -> Edit:
        self._after.setdefault(line, []).extend(statements)
        return self

    def wrap(self, line: cst.SimpleStatementLine, header: str) -> Edit:
        """Put a statement into a block: `with no_grad():`."""
        self._blocks[line] = header
        return self

    def decorate(self, function: cst.FunctionDef, decorator: str) -> Edit:
        """Next to the function itself, below the decorators that it has."""
        self._decorators[function] = decorator
        return self

    def remove(self, line: cst.SimpleStatementLine) -> Edit:
        """The comments above it pass to the next statement that stays."""
        self._removed.add(line)
        return self

    def instead(self, line: cst.CSTNode, updated: cst.CSTNode) -> object:
        """Of a removed line: the statements that were put before it, if any."""
        texts = self._before.get(line)
        if not texts:
            return cst.RemovalSentinel.REMOVE
        new = self.statements(texts)
        leading = getattr(updated, "leading_lines", ())
        return cst.FlattenSentinel([new[0].with_changes(leading_lines=leading), *new[1:]])

    def inherited(self, heir: cst.CSTNode) -> list[cst.EmptyLine]:
        """What stood above removed lines directly before this one."""
        body = list(getattr(self.source.parent(heir), "body", ()))
        lines: list[cst.EmptyLine] = []
        for line in reversed(body[: body.index(heir)] if heir in body else []):
            if line not in self._removed or line in self._before:
                break
            lines = [*line.leading_lines, *lines]
        return lines

    def text(self) -> str:
        """The changed file; a text that would not parse raises `cst.ParserSyntaxError`."""
        if isinstance(self.source, Settings):
            return self.source.with_numbers(self._replaced)
        self._call_torch_by_its_name()
        self._import_what_is_new()
        anchors = {*self._before, *self._after}
        self._removed |= unread(
            self.source, self._replaced, anchors, "\n".join(self._added()), self._inlined
        )
        code = self.source.module.visit(_Change(self)).code
        cst.parse_module(code)
        return code

    def _added(self) -> list[str]:
        statements = (*self._before.values(), *self._after.values())
        around = (*self._blocks.values(), *self._decorators.values())
        return [
            *self._replaced.values(),
            *around,
            *(text for texts in statements for text in texts),
        ]

    def _call_torch_by_its_name(self) -> None:
        """`import torch as th`: rewrites say torch."""
        name = self.source.torch_name() or "torch"
        for texts in (self._replaced, self._blocks, self._decorators):
            for node, text in texts.items():
                texts[node] = _renamed(text, name)
        for added in (*self._before.values(), *self._after.values()):
            added[:] = [_renamed(text, name) for text in added]

    def _import_what_is_new(self) -> None:
        added = self._added()
        first = _first_statement(self.source)
        for module in IMPORTED:
            said = re.compile(rf"(?<![\w.]){module}\.")
            missing = self.source.imported(module) is None
            if missing and first is not None and any(said.search(text) for text in added):
                self._before.setdefault(first, []).insert(0, f"import {module}")

    def expression(self, node: cst.CSTNode) -> cst.CSTNode:
        config = self.source.module.config_for_parsing
        new = cst.parse_expression(self._replaced[node], config=config)
        if isinstance(node, Expression) and node.lpar and not new.lpar:
            if isinstance(new, ATOMS) and "\n" not in self._replaced[node]:
                return new
            return new.with_changes(lpar=node.lpar, rpar=node.rpar)
        above = self.source.parent(node)
        loose = isinstance(above, cst.Subscript) and above.value is not node
        if isinstance(above, cst.BinaryOperation):
            loose = _binds_tighter(new, above) or (
                above.left is node and _adds(new) and _adds(above)
            )
        if isinstance(above, TIGHT) and not loose and not isinstance(new, ATOMS) and not new.lpar:
            return new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return new

    def block(self, header: str, line: cst.SimpleStatementLine) -> cst.With:
        """What stood above the line, blank lines and comments, stays above the block."""
        empty = cast(cst.With, self.statements([f"{header}\n    pass"])[0])
        inner = cst.IndentedBlock(body=[line.with_changes(leading_lines=())])
        return empty.with_changes(body=inner, leading_lines=line.leading_lines)

    def decorated(self, text: str, function: cst.FunctionDef) -> cst.FunctionDef:
        new = cst.Decorator(
            cst.parse_expression(text, config=self.source.module.config_for_parsing)
        )
        return function.with_changes(decorators=[*function.decorators, new])

    def statements(self, texts: list[str]) -> list[cst.BaseStatement]:
        config = self.source.module.config_for_parsing
        return [cast(cst.BaseStatement, cst.parse_statement(t, config=config)) for t in texts]


def _binds_tighter(new: Expression, around: cst.BinaryOperation) -> bool:
    """`a / b` in `x + a / b`, `-a` in `x * -a`."""
    if isinstance(new, cst.UnaryOperation):
        return not isinstance(around.operator, cst.Power)
    if isinstance(new, cst.BinaryOperation) and isinstance(
        new.operator, (cst.Multiply, cst.Divide)
    ):
        return isinstance(around.operator, (cst.Add, cst.Subtract))
    return False


def _adds(node: cst.CSTNode) -> bool:
    operator = node.operator if isinstance(node, cst.BinaryOperation) else None
    return isinstance(operator, (cst.Add, cst.Subtract))


def _renamed(text: str, torch: str) -> str:
    return text if torch == "torch" else re.sub(r"(?<![\w.])torch\.", f"{torch}.", text)


def _first_statement(source: Source) -> cst.CSTNode | None:
    """Where an import can stand: before the first one, below a docstring and `__future__`."""
    ordinary = []
    for line in source.module.body:
        code = source.code(line)
        if isinstance(line, cst.SimpleStatementLine):
            if isinstance(line.body[0], cst.Import):
                return line
            if isinstance(line.body[0], cst.ImportFrom) and "__future__" not in code:
                return line
            if isinstance(line.body[0], cst.Expr) or "__future__" in code:
                continue
        ordinary.append(line)
    return ordinary[0] if ordinary else None


class _Change(cst.CSTTransformer):
    def __init__(self, edit: Edit) -> None:
        super().__init__()
        self.edit = edit

    def on_leave(self, original: cst.CSTNode, updated: cst.CSTNode) -> object:  # type: ignore[override]  # libcst's union
        edit = self.edit
        if original in edit._replaced:
            return edit.expression(original)
        if original in edit._removed:
            return edit.instead(original, updated)
        if edit._removed and isinstance(updated, STATEMENTS):
            above = edit.inherited(original)
            updated = updated.with_changes(leading_lines=[*above, *updated.leading_lines])
        if original in edit._blocks:
            return edit.block(edit._blocks[original], cast(cst.SimpleStatementLine, updated))
        if original in edit._decorators:
            return edit.decorated(edit._decorators[original], cast(cst.FunctionDef, updated))
        before, after = edit._before.get(original, []), edit._after.get(original, [])
        if before or after:
            first = edit.statements(before)
            if first and isinstance(updated, STATEMENTS):
                # what stood above the line, blank lines and comments, stays above what is new
                first[0] = first[0].with_changes(leading_lines=updated.leading_lines)
                apart = isinstance(updated, (cst.FunctionDef, cst.ClassDef)) and before[-1].startswith("import ")  # fmt: skip
                blank = [cst.EmptyLine(indent=False)] * 2 if apart else []
                updated = updated.with_changes(leading_lines=blank)
            return cst.FlattenSentinel(
                [*first, cast(cst.BaseStatement, updated), *edit.statements(after)]
            )
        return updated
