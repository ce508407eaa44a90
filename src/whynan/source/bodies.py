"""The statements on the way to a call, from the top of the loop's body on, to be executed once more.

They are taken from the program's own text with their lines and columns, as a function of the names that
they need. What has happened already and cannot be done twice is left out: a batch that was taken from an
iterator is at hand under its name, a line was appended to a list that is older than the loop's turn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from whynan.source.bindings import Binding, Scope, place
from whynan.source.compiled import CannotCompile, compiled
from whynan.source.once import DRAWS, LEAVES, draws, mentions, root
from whynan.source.trees import UNREADABLE, Function, Loop, blocks, head, last_word
from whynan.source.turns import scope_and_way

REBINDS = frozenset(
    {"is", "part", "item", "entered", "added", "imported", "defined", "caught", "deleted"}
)
CANNOT = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)
LATER = Function | ast.Lambda | ast.GeneratorExp
COUNTS = frozenset({"enumerate", "range", "count"})  # what gives a number that goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Statements that lead to a call, as the code of a function."""

    code: CodeType
    parameters: tuple[str, ...]  # names whose value at hand it starts from
    carried: tuple[str, ...]  # names that it starts from, and that have another value by now
    made: tuple[str, ...]  # names that it gives a value
    counted: dict[str, int]  # names of counters, and what it adds to them
    moves_on: bool  # it reads a counter, which another turn with the same batch would find changed


def leads_to(code: CodeType, lasti: int, most: Sequence[int] = ()) -> Iterator[Lead]:
    """The ways to the instruction at `lasti` that can be gone twice: from the top of the innermost loop's
    body, of the loops around it, of the function. A module is no turn of anything. Where there is no loop
    around it, and `most` has numbers, the last statements: so many, or all since a loop that is over."""
    around = scope_and_way(code, lasti)
    if around is None:
        return
    scope, way = around
    loops = [i for i, node in enumerate(way) if isinstance(node, Loop) and i + 1 < len(way)]
    starts: list[_Start] = [(way[i].body, way[i + 1 :], way[i]) for i in reversed(loops)]  # type: ignore[attr-defined]  # of a loop
    starts = [s for s in starts if s[1][0] in s[0]]  # not in its `else`
    body = scope.node.body
    last = body.index(way[0]) + 1
    since = [last - i - 1 for i in range(last - 1) if _has_run(body[i])][-1:] if most else []
    last_ones = [(n, body[max(0, last - n) :]) for n in (*since, *most)] if not loops else []
    starts += [(block, way, None) for n, block in last_ones if n in since]
    if not isinstance(scope.node, ast.Module):
        starts.append((body, way, None))
    starts += [(block, way, None) for n, block in last_ones if n not in since]
    for block, rest, loop in [s for found in starts for s in _after_updates(*found)]:
        for holds in (True, False):
            lead = Leading(scope, code, rest, loop, holds=holds)
            try:
                yield lead.made_of(block)
            except (NotTwice, CannotCompile, *UNREADABLE):
                break
            if not lead.has_held:
                break


_Start = tuple[list[ast.stmt], list[ast.stmt], ast.stmt | None]  # statements, way, their loop


def _has_run(node: ast.stmt) -> bool:
    """Whether it has loops, which are over once it is."""
    is_defined = isinstance(node, Function | ast.ClassDef)
    return not is_defined and any(isinstance(n, Loop) for n in ast.walk(node))


def _after_updates(
    block: list[ast.stmt], way: list[ast.stmt], loop: ast.stmt | None
) -> Iterator[_Start]:
    """An update that is made already changed what was computed before: first without all that."""
    before = block[: block.index(way[0])]
    updates = [i for i, statement in enumerate(before) if _is_update(statement)]
    if updates:
        yield block[updates[-1] + 1 :], way, loop
    yield block, way, loop


def _is_update(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_word(call.func) == "step"


class NotTwice(Exception):
    """It cannot be executed once more."""


class Leading:
    """Cuts the way out of one function or module."""

    def __init__(
        self,
        scope: Scope,
        code: CodeType,
        way: list[ast.stmt],
        loop: ast.stmt | None,
        *,
        holds: bool,
    ) -> None:
        self.has_held = False  # a statement is left out, because what it made is at hand
        self._holds = holds
        self._scope = scope
        self._code = code
        self._way = way  # from a statement of the block to the call; none: the whole block
        self._last_one = way[-1] if way else None
        self._loop = loop  # whose body the block is
        self._order: list[ast.stmt] = []
        self._left_out: set[ast.stmt] = set()

    def made_of(self, block: list[ast.stmt]) -> Lead:
        self._order = list(self._before(block))
        writers: dict[str, list[ast.stmt]] = {}
        unfinished = None if any(isinstance(n, Loop) for n in self._way) else self._last_one
        for statement in self._order:
            for name in self._given(statement) if statement is not unfinished else ():
                writers.setdefault(name, []).append(statement)
        exposed: set[str] = set()
        self._follow(block, set(), exposed)
        carried = {n for n in exposed & writers.keys() if not self._can_be_held(n, writers)}
        counted = {n: by for n in carried if (by := self._counts(n, writers, block)) is not None}
        carried -= counted.keys()
        self._leave_out(writers)
        names = self._code_names()
        body = self._cut(block) or [ast.Pass()]
        if not self._way:
            names_now = ast.Call(func=ast.Name(id="locals", ctx=ast.Load()), args=[], keywords=[])
            body.append(ast.copy_location(ast.Return(value=names_now), block[-1]))
        if any(isinstance(n, CANNOT) for s in body for n in ast.walk(s)):
            raise NotTwice
        mentioned = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
        is_module = isinstance(self._scope.node, ast.Module)
        assigned = {*writers, *(self._given(self._way[-1]) if self._way else ())}
        taken_in = {n for n in self._scope.elsewhere if self._is_taken_in(n, assigned)}
        known = assigned if is_module else names | taken_in
        declared = self._scope.elsewhere.keys() - taken_in
        parameters = {n for n in mentioned & known if "." not in n} - declared
        self._check_cells(writers.keys(), block)
        made = {n for n, by in writers.items() if not set(by) <= self._left_out and "." not in n}
        ordered = tuple(sorted(parameters, key=lambda n: (n != "self", n)))
        return Lead(
            code=compiled(self._code, body, ordered, sorted(mentioned & declared)),
            parameters=ordered, carried=tuple(sorted(carried)), made=tuple(sorted(made)),
            counted=counted, moves_on=self._moves_on(block, body),
        )  # fmt: skip

    def given_by(self, block: Sequence[ast.stmt]) -> set[str]:
        """Names that these may give a value."""
        return {name for s in self._before(block) for name in self._given(s)}

    # ---- names ------------------------------------------------------------------------------

    def _before(self, block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """In the order of the source, to the call."""
        for node in block:
            yield node
            if not isinstance(node, Function | ast.ClassDef):
                for inner in blocks(node):
                    yield from self._before(inner)
            if node in self._way:
                return

    def _is_taken_in(self, name: str, assigned: set[str]) -> bool:
        """A variable of another function or of the module that is written here alone: it is as good as one
        of its own."""
        home = self._scope.elsewhere[name]
        if name not in assigned:
            return not isinstance(home.node, ast.Module)
        own = {id(n) for n in ast.walk(self._scope.node)}
        others = [f for f in ast.walk(home.node) if isinstance(f, LATER) and id(f) not in own]
        alone = not any(mentions(f, name) and self._scope.node not in ast.walk(f) for f in others)
        if not alone and not isinstance(home.node, ast.Module):
            raise NotTwice
        return alone

    def _moves_on(self, block: list[ast.stmt], body: list[ast.stmt]) -> bool:
        added = {
            place(n.target) for s in block for n in ast.walk(s) if isinstance(n, ast.AugAssign)
        }
        call = self._loop.iter if isinstance(self._loop, ast.For) else None
        if isinstance(call, ast.Call) and last_word(call.func) in COUNTS:
            target = self._loop.target  # type: ignore[union-attr]  # a `for`, as it has a call
            added.add(place(target.elts[0] if isinstance(target, ast.Tuple) else target))
        read = {
            place(n)
            for s in body
            for n in ast.walk(s)
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
        }
        return bool(added & read - {None})

    def _given(self, statement: ast.stmt) -> list[str]:
        steps = [*self._scope.steps.get(statement, ())]
        if isinstance(statement, ast.For):
            steps += self._scope.steps.get(statement.target, ())
        outer = {
            n.id
            for n in (head(statement) if self._scope.elsewhere else ())
            if isinstance(n, ast.Name)
            and isinstance(n.ctx, ast.Store)
            and n.id in self._scope.elsewhere
        }
        return [s.place for s in steps if isinstance(s, Binding) and s.how in REBINDS] + [*outer]

    def _read(self, statement: ast.stmt) -> set[str]:
        steps = self._scope.steps.get(statement, ())
        places = {place(s) for s in steps if isinstance(s, ast.expr)}
        return {p for p in places if p is not None}

    def _follow(self, block: Sequence[ast.stmt], given: set[str], exposed: set[str]) -> set[str]:
        """What has a value for certain after these; `exposed` are those read before they had one here."""
        for node in block:
            exposed |= self._read(node) - given
            if isinstance(node, ast.If):
                ways = [self._follow(b, set(given), exposed) for b in (node.body, node.orelse)]
                taken = [
                    w
                    for w, b in zip(ways, (node.body, node.orelse), strict=True)
                    if self._is_taken(b)
                ]
                given |= taken[0] if taken else ways[0] & ways[1]
            elif not isinstance(node, Function | ast.ClassDef):
                given |= set(self._given(node))
                for inner in blocks(
                    node
                ):  # a loop has turns, a `try` no errors, as far as one knows
                    given |= self._follow(inner, set(given), exposed)
            given |= set(self._given(node))
            if node in self._way:
                break
        return given

    def _is_taken(self, block: list[ast.stmt]) -> bool:
        return any(node in self._way for node in block)

    def _can_be_held(self, name: str, writers: dict[str, list[ast.stmt]]) -> bool:
        """Whether its value at hand is the one that a single statement gave it, as all that is read."""
        by = writers[name]
        if (
            not self._holds
            or len(by) != 1
            or not isinstance(by[0], ast.Assign | ast.AnnAssign | ast.AugAssign)
        ):
            return False
        if any(len(writers[other]) != 1 for other in self._given(by[0])):
            return False
        before = self._order[: self._order.index(by[0])]
        if any(name in self._read(s) for s in before):
            return False
        self._left_out.add(by[0])
        self.has_held = True
        return True

    def _counts(
        self, name: str, writers: dict[str, list[ast.stmt]], block: Sequence[ast.stmt]
    ) -> int | None:
        """What a counter goes on by in each turn."""
        by = writers[name][0]
        if len(writers[name]) != 1 or by not in block or not isinstance(by, ast.AugAssign):
            return None
        number = by.value.value if isinstance(by.value, ast.Constant) else None
        if type(number) is not int or not isinstance(by.op, ast.Add | ast.Sub):
            return None
        return number if isinstance(by.op, ast.Add) else -number

    def _leave_out(self, writers: dict[str, list[ast.stmt]]) -> None:
        """What was taken or left somewhere before."""
        for statement in self._order:
            if isinstance(statement, ast.AugAssign) and not isinstance(statement.target, ast.Name):
                base = root(statement.target)
                if base is not None and base not in writers:
                    self._left_out.add(statement)
            elif isinstance(statement, ast.Expr) and (
                isinstance(statement.value, ast.Await) or self._is_done(statement.value, writers)
            ):
                self._left_out.add(statement)
            elif draws(statement, writers):
                given = self._given(statement)
                if not self._way or not all(self._is_at_hand(name, writers) for name in given):
                    raise NotTwice
                self._left_out.update(w for name in given for w in writers[name])

    def _is_at_hand(self, name: str, writers: dict[str, list[ast.stmt]]) -> bool:
        """Whether what was drawn is, perhaps as what was made of it since: all that is read."""
        by = writers[name]
        later = [w for w in by if not draws(w, writers)]
        if "." in name or any(
            not isinstance(w, ast.Assign | ast.AnnAssign) or self._given(w) != [name] for w in later
        ):
            return False
        begin, end = self._order.index(by[0]), self._order.index(later[-1]) if later else 0
        return not any(name in self._read(s) for s in self._order[begin:end] if s not in by)

    def _is_done(self, value: ast.expr, writers: dict[str, list[ast.stmt]]) -> bool:
        if not isinstance(value, ast.Call) or value is getattr(self._last_one, "value", None):
            return False
        word, func = last_word(value.func) or "", value.func
        if not isinstance(func, ast.Attribute):
            return word == "print"
        receiver = root(func)
        if receiver is None or receiver in writers:
            return False
        is_tensors = not isinstance(func.value, ast.Attribute) and not value.args[1:]
        in_place = is_tensors and word.endswith("_") and receiver not in ("torch", "nn", "F")
        return word in LEAVES or word in DRAWS or in_place

    def _code_names(self) -> set[str]:
        code = self._code
        return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}

    def _check_cells(self, written: object, block: list[ast.stmt]) -> None:
        """Functions that were made before see the frame's own variables, not the ones given here."""
        shared = {*self._code.co_cellvars} & set(written)  # type: ignore[call-overload]  # keys
        left_out = {n for s in self._left_out for n in self._given(s)}
        here = {id(n) for s in block for n in ast.walk(s)}
        for node in ast.walk(self._scope.node):
            if isinstance(node, LATER) and id(node) not in here and node is not self._scope.node:
                inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                if inner & shared - left_out:
                    raise NotTwice

    # ---- the text ---------------------------------------------------------------------------

    def _cut(self, block: Sequence[ast.stmt]) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for node in block:
            if node in self._way:
                return kept + self._last(node)
            kept += self._whole(node)
        return kept

    def _whole(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement that is executed from its beginning to its end, without what is left out in it."""
        if node in self._left_out or isinstance(node, ast.Nonlocal | ast.Global):
            return []
        if isinstance(node, Function | ast.ClassDef) or not any(blocks(node)):
            return [node]
        inner = {s for b in blocks(node) for s in b} & self._left_out
        if not inner:
            return [node]
        fields = {f: getattr(node, f) for f in node._fields}
        for name in ("body", "orelse", "finalbody"):
            if isinstance(fields.get(name), list):
                fields[name] = [k for s in fields[name] for k in self._whole(s)]
        fields["body"] = fields["body"] or [ast.copy_location(ast.Pass(), node)]
        return [ast.copy_location(type(node)(**fields), node)]

    def _last(self, node: ast.stmt) -> list[ast.stmt]:
        """The one that holds the call: to that, and no further."""
        if node is self._way[-1]:
            return [node]
        if isinstance(node, ast.Try):
            if any(s in self._way for s in node.body):
                return self._cut(node.body)
            if any(s in self._way for s in node.orelse):
                return [s for n in node.body for s in self._whole(n)] + self._cut(node.orelse)
            raise NotTwice
        if isinstance(node, ast.With):
            cut = ast.With(items=node.items, body=self._cut(node.body))
            return [ast.copy_location(cut, node)]
        if isinstance(node, ast.If):
            taken = self._is_taken(node.body)
            idle: list[ast.stmt] = [ast.copy_location(ast.Pass(), node)]
            body, orelse = (self._cut(node.body), []) if taken else (idle, self._cut(node.orelse))
            return [ast.copy_location(ast.If(test=node.test, body=body, orelse=orelse), node)]
        if isinstance(node, Loop):  # whichever turn of it
            return self._whole(node)
        raise NotTwice
