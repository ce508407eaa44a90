"""What a function of the same file gives, where that is a probability: a logarithm elsewhere may meet it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whynan.lint.terms import Term, strip
from whynan.source.trees import Function

if TYPE_CHECKING:
    from whynan.lint.calls import ClassInfo
    from whynan.lint.flow import Walker

PROBABILITIES = ("softmax", "sigmoid", "log")  # or a logarithm, whose exponential is no overflow
WORDS = ("softmax", "sigmoid", "log(", "log_", "Softmax", "Sigmoid")


class Helpers:
    """Asked by name, when a function is called; each is read once, and only if it can matter."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._defined: dict[str, Function | None] = {}
        for node in walker.source.tree.body:
            if isinstance(node, Function):
                again = node.name in self._defined or bool(node.decorator_list)
                self._defined[node.name] = None if again else node
        self._given: dict[str, str] = {}

    def gives(self, call: ast.Call) -> Term | None:
        """A term for the call of a function that returns a probability wherever it returns."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        node = self._defined.get(name)
        if node is None or self._walker.names.top.meaning(name):
            return None
        if name not in self._given:
            self._given[name] = ""  # one that calls itself
            self._given[name] = self._read(node)
        op = self._given[name]
        # Its operands stand in another function: nothing of them can be written here.
        inside = Term("unknown", call, kind="tensor")
        return Term(op, call, (inside,), lib="torch", kind="tensor") if op else None

    def _read(self, node: Function) -> str:
        text = "\n".join(self._walker.source.lines[node.lineno - 1 : node.end_lineno])
        if not any(word in text for word in WORDS):
            return ""
        returned = read_ahead(self._walker, node)
        kinds = {strip(term).op if term is not None else "" for term in returned}
        arrays = any(term is not None and strip(term).lib == "numpy" for term in returned)
        (op,) = kinds if len(kinds) == 1 else ("",)
        return op if op in PROBABILITIES and not arrays else ""


def read_ahead(walker: Walker, node: Function, info: ClassInfo | None = None) -> list[Term | None]:
    """What a function returns; nothing is checked."""
    walker.silent += 1
    returned = walker.run(node, info)
    walker.silent -= 1
    return returned
