"""Plain numbers computed once more from the source: which expression made a NaN or an infinity.

Nothing of the program is run or changed. Its text is read as a calculator would: arithmetic, the
functions of `math` and NumPy, the program's own functions line by line. What else it may do, such as
drawing a random number or reading a file, cannot be known, and ends the look.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from whynan.arrays.evidence import evidence_of
from whynan.arrays.lines import NOTHING, Left, Room, entered, run, store
from whynan.arrays.numpy_errors import OPERATORS, is_pure
from whynan.arrays.plain import (
    READS,
    Unknown,
    asked,
    flat,
    is_bad,
    is_data,
    is_module,
    is_number,
    is_simple,
    is_tensor,
    same_kind,
    truth,
)
from whynan.model import Evidence
from whynan.source.names import names_of
from whynan.source.positions import site_of_node
from whynan.source.trees import tree_of

MAX_STEPS = 50_000  # expressions
JOINING = (enumerate, len, list, reversed, tuple, zip)  # they do not look into what they are given
CONTAINERS = (list, tuple, range, dict, zip, enumerate)
MAX_DEPTH = 12  # calls within calls
COMPARED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
SIGNS: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.inv,
}  # fmt: skip


class Again:
    """Evaluates expressions; `made` knows of each bad number the operation that made it."""

    def __init__(self) -> None:
        self.written: dict[tuple[int, Any], Any] = {}  # what would be put into objects
        self._made: dict[int, tuple[Any, Evidence]] = {}
        self._born: dict[int, tuple[ast.Call, Room]] = {}  # the calls that made objects
        self._steps = 0
        self._depth = 0

    def made(self, value: Any) -> Evidence | None:
        known = self._made.get(id(value))
        return known[1] if known is not None else None

    def room(self, frame: FrameType) -> Room:
        outside = {**vars(builtins), **frame.f_globals, **frame.f_locals}
        return Room(frame.f_code, outside, tree_of(frame.f_code.co_filename), runs=True)

    def count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Unknown

    def run(self, statement: ast.stmt, room: Room) -> None:
        """What a statement would put into objects is in `written` afterwards."""
        run(self, [statement], room)

    # ---- expressions ----------------------------------------------------------------------

    def value(self, node: ast.expr, room: Room) -> Any:
        self.count()
        kind = _KINDS.get(type(node))
        if kind is None:
            raise Unknown
        return kind(self, node, room)

    def _name(self, node: ast.Name, room: Room) -> Any:
        found = room.own.get(node.id, NOTHING)
        if found is NOTHING:
            found = room.outside.get(node.id, NOTHING)
        if found is NOTHING:
            return self._given(node, room)
        if room.runs and not is_data(found):
            given = names_of(room.tree).given(node)
            if given is not None and given.how == "is" and isinstance(given.value, ast.Call):
                self._born[id(found)] = given.value, room
        return self._explained(found, node, room)

    def _given(self, node: ast.Name, room: Room) -> Any:
        """What a name was given, where the statement that did it was not read."""
        given = names_of(room.tree).given(node)
        if node in room.asked or given is None or given.how != "is" or given.value is None:
            raise Unknown
        room.asked.add(node)
        return self.value(given.value, room)

    def _explained(self, found: Any, node: ast.expr, room: Room) -> Any:
        """Of a bad number that a running frame holds: what its name was given, computed again."""
        if not is_bad(found) or self.made(found) or not room.runs or node in room.asked:
            return found
        room.asked.add(node)
        given = names_of(room.tree).given(node)
        for binding in given.sources if given is not None else ():
            if binding.how == "is" and binding.value is not None:
                with suppress(Unknown):
                    again = self.value(binding.value, room)
                    if same_kind(again, found) and self.made(again):
                        return again
        return found

    def _attribute(self, node: ast.Attribute, room: Room) -> Any:
        owner = self.value(node.value, room)
        found = self._of(owner, node.attr)
        if not is_bad(found) or self.made(found) or isinstance(owner, ModuleType):
            return found
        again = self._given_in_a_method(owner, node.attr)
        return again if same_kind(again, found) and self.made(again) else found

    def _of(self, owner: Any, name: str) -> Any:
        if (id(owner), name) in self.written:
            return self.written[id(owner), name]
        if isinstance(owner, ModuleType) or is_number(owner):
            return asked(lambda: getattr(owner, name))
        try:
            found = inspect.getattr_static(owner, name)
        except AttributeError:
            raise Unknown from None
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            return self.call(found.fget, [owner], {})
        if isinstance(found, staticmethod):
            return found.__func__
        if isinstance(found, FunctionType) and not isinstance(owner, type):
            return found if name in getattr(owner, "__dict__", {}) else MethodType(found, owner)
        if hasattr(type(found), "__get__") and not isinstance(found, (FunctionType, type)):
            if not isinstance(owner, (dict, list, tuple, str)) and not (
                name in READS and is_tensor(owner)
            ):
                raise Unknown
            return getattr(owner, name)
        return found

    def _given_in_a_method(self, owner: Any, name: str) -> Any:
        """`self.rate = ...`, from what the method's names are bound to, where that can be said."""
        for kind in type(owner).__mro__:
            for method in (m for m in vars(kind).values() if isinstance(m, FunctionType)):
                with suppress(Unknown):
                    room, body = self._constructed(owner, method) or entered(method, [owner], {})
                    if isinstance(body, ast.Lambda) or not body.args.args:
                        continue
                    place = f"{body.args.args[0].arg}.{name}"
                    for binding in names_of(room.tree).scopes[body].bound.get(place, ()):
                        if binding.how == "is" and binding.value is not None:
                            return self.value(binding.value, room)
        return NOTHING

    def _constructed(self, owner: Any, method: FunctionType) -> tuple[Room, Any] | None:
        """Its `__init__`, with what the call was given that made it."""
        call, room = self._born.get(id(owner), (None, None))
        if method.__name__ != "__init__" or call is None or room is None:
            return None
        given = [self._if_known(part, room) for part in call.args]
        named = {k.arg: self._if_known(k.value, room) for k in call.keywords if k.arg is not None}
        return entered(method, [owner, *given], named)

    def _subscript(self, node: ast.Subscript, room: Room) -> Any:
        owner, key = self.value(node.value, room), self.value(node.slice, room)
        if isinstance(key, (int, str, float)) and (id(owner), key) in self.written:
            return self.written[id(owner), key]
        if not isinstance(owner, (dict, list, tuple, str, range)) and not is_number(owner):
            raise Unknown
        found = asked(operator.getitem, owner, key)
        return found if self.made(found) else self._passed(found, [owner])

    def _binary(self, node: ast.BinOp, room: Room) -> Any:
        operands = [self.value(node.left, room), self.value(node.right, room)]
        return self.computed(node, type(node.op), operands, room)

    def computed(
        self, node: ast.expr | ast.stmt, kind: type[ast.AST], operands: list[Any], room: Room
    ) -> Any:
        if kind not in OPERATORS:
            raise Unknown
        if not all(is_number(o) or isinstance(o, (str, list, tuple)) for o in operands):
            raise Unknown
        name, function = OPERATORS[kind]
        return self._noted(name, operands, asked(function, *operands), node, room)

    def _unary(self, node: ast.UnaryOp, room: Room) -> Any:
        value = self.value(node.operand, room)
        if not isinstance(node.op, ast.Not) and not is_number(value):
            raise Unknown
        return self._passed(asked(SIGNS[type(node.op)], value), [value])

    def _compare(self, node: ast.Compare, room: Room) -> Any:
        left, result = self.value(node.left, room), True
        for how, right in zip(node.ops, node.comparators, strict=True):
            other = self.value(right, room)
            known = (str, bool, type(None), list, tuple, dict, range)
            if not all(is_number(x) or isinstance(x, known) for x in (left, other)) and not isinstance(how, ast.Is | ast.IsNot):  # fmt: skip
                raise Unknown
            result = asked(COMPARED[type(how)], left, other)
            if not asked(bool, result):
                return False
            left = other
        return result

    def _logic(self, node: ast.BoolOp, room: Room) -> Any:
        stops, found = isinstance(node.op, ast.Or), None
        for part in node.values:
            found = self.value(part, room)
            if truth(found) == stops:
                return found
        return found

    def _choice(self, node: ast.IfExp, room: Room) -> Any:
        return self.value(node.body if truth(self.value(node.test, room)) else node.orelse, room)

    def _several(self, node: ast.Tuple | ast.List, room: Room) -> Any:
        found: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                found += self.each(self.value(part.value, room))
            else:
                found.append(self.value(part, room))
        return self._passed(found if isinstance(node, ast.List) else tuple(found), found)

    def _table(self, node: ast.Dict, room: Room) -> Any:
        if any(k is None for k in node.keys):
            raise Unknown
        return {
            self.value(k, room): self.value(v, room)
            for k, v in zip(node.keys, node.values, strict=True)
            if k is not None
        }

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, room: Room) -> Any:
        inner = Room(room.code, room.outside, room.tree, dict(room.own), room.runs, room.asked)
        found = list(self._turns(node.generators, node.elt, inner))
        return self._passed(found, found)

    def _turns(self, parts: list[ast.comprehension], element: ast.expr, room: Room) -> Iterator[Any]:  # fmt: skip
        if not parts:
            yield self.value(element, room)
            return
        for item in self.each(self.value(parts[0].iter, room)):
            store(self, parts[0].target, item, room)
            if all(truth(self.value(test, room)) for test in parts[0].ifs):
                yield from self._turns(parts[1:], element, room)

    def each(self, items: Any) -> Iterable[Any]:
        if isinstance(items, (list, tuple, range, dict, str, zip, enumerate, reversed)):
            return items
        if is_number(items) and hasattr(items, "ndim") and items.ndim:
            return [*items]
        raise Unknown

    # ---- calls ----------------------------------------------------------------------------

    def _called(self, node: ast.Call, room: Room) -> Any:
        function = self.value(node.func, room)
        given = list(self._several(ast.Tuple(node.args, ast.Load()), room))
        if any(k.arg is None for k in node.keywords):
            raise Unknown
        named = {k.arg: self.value(k.value, room) for k in node.keywords if k.arg is not None}
        while isinstance(function, functools.partial):
            given, named = [*function.args, *given], {**function.keywords, **named}
            function = function.func
        if is_simple(function):
            joins = function in JOINING and all(isinstance(x, CONTAINERS) for x in given)
            if not joins and not all(is_data(x) for x in (*given, *named.values())):
                raise Unknown
            result = asked(function, *given, **named)
            if function in (min, max, sum, float, abs, round):
                return self._noted(function.__name__, [*flat(given)], result, node, room)
            if is_pure(function) or getattr(function, "__module__", "") == "math":
                return self._noted(function.__name__, given, result, node, room)
            return self._passed(result, given)
        return self.call(function, given, named)

    def call(self, function: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """A function of the program's, read line by line."""
        if self._depth >= MAX_DEPTH:
            raise Unknown
        room, body = entered(function, given, named)
        self._depth += 1
        try:
            if isinstance(body, ast.Lambda):
                return self.value(body.body, room)
            run(self, body.body, room)
        except Left as left:
            return left.value
        finally:
            self._depth -= 1
        return None

    def room_of_call(self, node: ast.Call, room: Room) -> tuple[Room, ast.AST]:
        """The function that a call would enter, with those of its arguments that can be known."""
        function = self.value(node.func, room)
        function = getattr(function, "forward", function) if is_module(function) else function
        given, named = [], {}
        for part in node.args:
            given.append(self._if_known(part, room))
        for keyword in node.keywords:
            if keyword.arg is not None:
                named[keyword.arg] = self._if_known(keyword.value, room)
        return entered(function, given, named)

    def _if_known(self, node: ast.expr, room: Room) -> Any:
        try:
            return self.value(node, room)
        except Unknown:
            return NOTHING

    # ---- where a bad number was made ----------------------------------------------------------

    def _noted(
        self, name: str, operands: list[Any], result: Any, node: ast.expr | ast.stmt, room: Room
    ) -> Any:
        if not is_bad(result):
            return result
        if any(self.made(o) for o in operands):
            return self._passed(result, operands)
        import numpy as np

        inputs = [np.float64(o) if isinstance(o, (int, float)) else o for o in operands]
        if all(is_number(o) for o in inputs) and not any(is_bad(o) for o in inputs):
            site = site_of_node(room.code, node)
            found = evidence_of(name, inputs, np.asarray(result), site, "numpy", {})
            if found is not None:
                self._made[id(result)] = (result, found)
        return result

    def _passed(self, result: Any, operands: list[Any]) -> Any:
        """A bad number that came of another one was made where that was."""
        known = next((e for o in operands if (e := self.made(o)) is not None), None)
        if known is not None and (is_bad(result) or isinstance(result, (list, tuple))):
            self._made[id(result)] = (result, known)
        return result


_KINDS: dict[type[ast.AST], Callable[[Again, Any, Room], Any]] = {
    ast.Constant: lambda again, node, room: node.value,
    ast.Name: Again._name, ast.Attribute: Again._attribute, ast.Subscript: Again._subscript,
    ast.BinOp: Again._binary, ast.UnaryOp: Again._unary, ast.Compare: Again._compare,
    ast.BoolOp: Again._logic, ast.IfExp: Again._choice, ast.Call: Again._called,
    ast.Tuple: Again._several, ast.List: Again._several, ast.Dict: Again._table,
    ast.ListComp: Again._comprehension, ast.GeneratorExp: Again._comprehension,
    ast.JoinedStr: lambda again, node, room: "",
}  # fmt: skip
