"""What an imported name means in each scope of a file, and where it is certainly bound.

An import has a position and a scope: `F` means nothing above its import, in another function than
the one that imports it, or where a parameter, a loop or a function of the program is called F.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from whynan.lint.scopes import targets
from whynan.source.trees import Function

Position = tuple[int, int]  # line and column as the parser counts them
Span = tuple[Position, Position]
END: Position = (1 << 60, 0)
LEAVING = (ast.Raise, ast.Return, ast.Continue, ast.Break)
SUBMODULES = frozenset({"nn", "functional", "numpy", "linalg", "special", "optim", "utils", "init"})


# What a function does to names outside of it, or brings along for the whole file.
OUTWARD = re.compile(r"^[ \t]+(import|from|global|nonlocal)\b", re.M)


class Scope:
    """The names that one module, function or class binds."""

    def __init__(self, node: ast.Module | Function | ast.ClassDef, parent: Scope | None) -> None:
        self.parent = parent
        self.is_class = isinstance(node, ast.ClassDef)
        self.start: Position = (0, 0) if isinstance(node, ast.Module) else _start(node)
        self.imports: dict[str, list[tuple[str, tuple[Span, ...]]]] = {}
        self.own: dict[str, int] = {}  # bound by the program itself, and how often
        self.lost: set[str] = set()  # deleted, or None on some way
        self.stars = False  # `from somewhere import *`
        self._elsewhere: dict[str, Scope] = {}  # declared global or nonlocal
        self._meanings: dict[str, str] = {}

    @property
    def module(self) -> Scope:
        return self if self.parent is None else self.parent.module

    def owner(self, name: str) -> Scope | None:
        """The scope whose variable a name is here; None for a builtin or nothing at all."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._elsewhere:
                return scope._elsewhere[name]
            visible = scope is self or not scope.is_class
            if visible and (name in scope.imports or name in scope.own or name in scope.lost):
                return scope
            scope = scope.parent
        return None

    def meaning(self, name: str) -> str:
        """The full name of what was imported under a name; '' when it is the program's own."""
        if name not in self._meanings:
            self._meanings[name] = self._meant(name)
        return self._meanings[name]

    def _meant(self, name: str) -> str:
        owner = self.owner(name)
        if owner is None or name in owner.own:
            return ""
        found = {full for full, _ in owner.imports.get(name, ())}
        if len(found) != 1:
            return ""  # one of several: which one depends on the way here
        full = found.pop()
        # A star may bring another `log` along; it hardly brings another `nn`.
        is_module = "." not in full or full.rsplit(".", 1)[1] in SUBMODULES
        return full if is_module or not owner.stars else ""

    def is_bound(self, name: str, at: Position) -> bool:
        """Has the import certainly happened when what stands here runs?"""
        owner = self.owner(name)
        if owner is None or name in owner.lost or not self.meaning(name):
            return False
        moment = self.moment(owner, at)
        spans = [span for _, spans in owner.imports[name] for span in spans]
        return any(first <= moment <= last for first, last in spans)

    def moment(self, outer: Scope, at: Position) -> Position:
        """The place in a scope around this one after which what stands here runs at the earliest."""
        scope: Scope | None = self
        while scope is not None and scope is not outer:
            if not scope.is_class:
                at = scope.start  # a function runs at some time after its definition
            scope = scope.parent
        return at

    def visible(self) -> Iterator[str]:
        """Every name that some import around here binds."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.imports
            scope = scope.parent

    def _binds(self, name: str) -> Scope:
        return self._elsewhere.get(name, self)

    def bind(self, name: str) -> None:
        own = self._binds(name).own
        own[name] = own.get(name, 0) + 1

    def lose(self, name: str) -> None:
        self._binds(name).lost.add(name)

    def bring(self, name: str, full: str, spans: tuple[Span, ...]) -> None:
        owner = self._binds(name)
        # What a function imports for others is there once it was called, whenever that is.
        owner.imports.setdefault(name, []).append((full, spans if owner is self else ()))

    def declare(self, node: ast.Global | ast.Nonlocal) -> None:
        for name in node.names:
            outer = self.module
            if isinstance(node, ast.Nonlocal) and self.parent is not None:
                outer = self.parent.owner(name) or outer
            self._elsewhere[name] = outer


class Names:
    """The scopes of one file."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.top = Scope(tree, None)
        has_walrus = ":=" in text
        self._scopes: dict[ast.AST, Scope] = {}
        self._unread: set[Function] = set()
        self._at_once = has_walrus or OUTWARD.search(text) is not None
        self.imported: dict[str, set[str]] = {}  # by local name, wherever it is imported
        self._tree = tree
        self._suite(tree.body, self.top, END, ())
        if has_walrus:
            for node in ast.walk(tree):
                if isinstance(node, ast.NamedExpr):
                    for scope in (self.top, *self._scopes.values()):
                        scope.bind(node.target.id)

    def of(self, node: Function) -> Scope:
        while node not in self._scopes:  # inside of functions that were not read yet
            for outer in [*self._unread]:
                self._read(outer)
        self._read(node)
        return self._scopes[node]

    def _read(self, node: Function) -> None:
        if node in self._unread:
            self._unread.discard(node)
            self._suite(node.body, self._scopes[node], END, ())

    def first_import(self, package: str) -> ast.stmt | None:
        """The first statement of the module itself that imports from a package, on every way."""
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            if any(name.split(".")[0] == package for name in names):
                return node
        return None

    def _suite(
        self, body: list[ast.stmt], scope: Scope, end: Position, after: tuple[Span, ...]
    ) -> None:
        """`after`: where else it is certain that this suite has run to its end."""
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, scope, ((_end(node), end), *after))
            elif isinstance(node, Function | ast.ClassDef):
                self._definition(node, scope)
            elif isinstance(node, ast.Try):
                self._try(node, scope, end, after)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                scope.declare(node)
            elif isinstance(node, ast.Delete):
                for name in _names_of(node.targets):
                    scope.lose(name)
            else:
                self._other(node, scope)

    def _import(
        self, node: ast.Import | ast.ImportFrom, scope: Scope, spans: tuple[Span, ...]
    ) -> None:
        for alias in node.names:
            if alias.name == "*":
                scope.stars = True
                continue
            local = alias.asname or alias.name.split(".")[0]
            if isinstance(node, ast.Import):
                full = alias.name if alias.asname else local
            elif node.level or not node.module:
                scope.bind(local)  # of the program's own package
                continue
            else:
                local, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
            scope.bring(local, full, spans)
            self.imported.setdefault(local, set()).add(full)

    def _definition(self, node: Function | ast.ClassDef, scope: Scope) -> None:
        scope.bind(node.name)
        inner = self._scopes[node] = Scope(node, scope)
        if isinstance(node, Function):
            a = node.args
            for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
                if arg is not None:
                    inner.bind(arg.arg)
        if isinstance(node, ast.ClassDef) or self._at_once:
            self._suite(node.body, inner, END, ())
        else:
            self._unread.add(node)  # its own names matter when something is looked at in it

    def _try(self, node: ast.Try, scope: Scope, end: Position, after: tuple[Span, ...]) -> None:
        through: tuple[Span, ...] = ((_end(node), end), *after)
        beyond = through if all(_leaves(h.body) for h in node.handlers) else ()
        if node.orelse:
            beyond = ((_start(node.orelse[0]), _end(node.orelse[-1])), *beyond)
        self._suite(node.body, scope, _end(node.body[-1]), beyond)
        for handler in node.handlers:
            if handler.name:
                scope.bind(handler.name)
            self._suite(handler.body, scope, _end(handler.body[-1]), ())
        if node.orelse:
            self._suite(node.orelse, scope, _end(node.orelse[-1]), ())
        if node.finalbody:
            self._suite(node.finalbody, scope, _end(node.finalbody[-1]), through)

    def _other(self, node: ast.stmt, scope: Scope) -> None:
        """Assignments, loops and the like; what a block on one way imports holds inside it only."""
        value = getattr(node, "value", None)
        is_none = isinstance(value, ast.Constant) and value.value is None
        for name in _names_of(targets(node)):
            if is_none:
                scope.lose(name)
            else:
                scope.bind(name)
        if isinstance(node, ast.Match):
            for case in node.cases:
                for name in _captured(case.pattern):
                    scope.bind(name)
                self._suite(case.body, scope, _end(case.body[-1]), ())
            return
        for part in ("body", "orelse", "finalbody"):
            suite = getattr(node, part, None)
            if suite:
                self._suite(suite, scope, _end(suite[-1]), ())
        for handler in getattr(node, "handlers", ()):  # of `except*`
            if handler.name:
                scope.bind(handler.name)
            self._suite(handler.body, scope, _end(handler.body[-1]), ())


def evaluated(node: ast.expr) -> set[str]:
    """Names that are read whenever the expression is evaluated, whatever it branches on."""
    found: set[str] = set()
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.IfExp):
            stack.append(part.test)
        elif isinstance(part, ast.BoolOp):
            stack.append(part.values[0])
        elif not isinstance(part, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):  # fmt: skip
            stack.extend(ast.iter_child_nodes(part))
    return found


def _names_of(written: Iterable[ast.expr]) -> Iterator[str]:
    return (t.id for t in written if isinstance(t, ast.Name))


def _captured(pattern: ast.pattern) -> Iterator[str]:
    for part in ast.walk(pattern):
        name = getattr(part, "rest" if isinstance(part, ast.MatchMapping) else "name", None)
        if isinstance(name, str):
            yield name


def _leaves(body: list[ast.stmt]) -> bool:
    """Does a handler never go on behind its `try`?"""
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    return isinstance(last, LEAVING)


def _start(node: ast.stmt) -> Position:
    return node.lineno, node.col_offset


def _end(node: ast.stmt) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
