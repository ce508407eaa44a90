"""Functions of TorchScript: their lines have no Python frame, but their graph knows them."""

from __future__ import annotations

import ast
import linecache
import re
import threading
from collections import deque
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from whynan.model import Evidence, Operand, OpRecord, Site, base_name
from whynan.ops.table import OPERATORS
from whynan.record.tracer import Tracer
from whynan.seam.sites import Frames, capture, kind_of_file, site_of
from whynan.source.trees import tree_of

MAX_CALLS = 512
PLACE = re.compile(r"# (.+):(\d+):(\d+)$")


@dataclass(slots=True)
class Call:
    """One run of a scripted function, and the operations that were recorded meanwhile."""

    function: Any
    frames: Frames | None  # where it was called
    thread: int
    start: int
    end: int | None = None

    def holds(self, index: int) -> bool:
        return self.start <= index and (self.end is None or index < self.end)


class Scripts:
    """Knows which operations ran inside a scripted function, and at which of its lines."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._calls: deque[Call] = deque(maxlen=MAX_CALLS)

    def clear(self) -> None:
        self._calls.clear()

    def begin(self, function: Any, frame: FrameType) -> Call:
        call = Call(function, capture(frame), threading.get_ident(), self.tracer.next_index)
        self._calls.append(call)
        return call

    def end(self, call: Call) -> None:
        call.end = self.tracer.next_index

    def placed(self, evidence: Evidence) -> Evidence:
        """The same evidence with the lines inside; where they are not known, it says so."""
        if not self._calls:
            return evidence
        origin = evidence.origin
        call = self._call_of(origin) or self._call_behind(origin)
        found = replace(
            evidence,
            origin=replace(self._moved(origin), inputs=tuple(map(self._followed, origin.inputs))),
            path=tuple(map(self._moved, evidence.path)),
        )
        if call is None or found.origin.site is not origin.site or evidence.incomplete:
            return found
        name = call.function.name
        why = f"which line of `{name}` did it: TorchScript runs it, and its inside cannot be seen"
        return replace(found, incomplete=why)

    def _followed(self, operand: Operand) -> Operand:
        return replace(operand, upstream=tuple(map(self._moved, operand.upstream)))

    def _call_of(self, op: OpRecord) -> Call | None:
        record = self.tracer.records.get(op.index)
        thread = record.thread if record is not None else None
        around = [c for c in self._calls if c.holds(op.index) and thread in (None, c.thread)]
        return around[-1] if around else None

    def _call_behind(self, op: OpRecord) -> Call | None:
        """Of a derivative: the call whose line it is attributed to."""
        if not op.derived or op.site is None:
            return None
        called = (c for c in self._calls if c.frames is not None and site_of(c.frames) == op.site)
        return next(called, None)

    def _moved(self, op: OpRecord) -> OpRecord:
        call = self._call_of(op)
        place = self._place(call, op) if call is not None and op.node is None else None
        return op if place is None else replace(op, site=_site(place, call, op))

    def _place(self, call: Call | None, op: OpRecord) -> tuple[str, int, int] | None:
        """The node of the graph that the operation is: the same one in the order of its kind."""
        if call is None:
            return None
        nodes = list(call.function.inlined_graph.nodes())
        if any(list(node.blocks()) for node in nodes):
            return None  # a loop or a branch: which nodes ran, and how often, is not known
        same = [n for n in nodes if base_name(n.kind().replace("::", ".") + ".x") == op.name]
        ran = [
            r.index
            for r in self.tracer.records.values()
            if call.holds(r.index) and r.thread == call.thread and r.info.base == op.name
        ]
        if op.index not in ran or len(ran) != len(same):
            return None  # another operation is made of such ones, or some were left out
        found = PLACE.search(str(same[sorted(ran).index(op.index)]).strip())
        if found is None or kind_of_file(found[1]) <= 0 or found[1].startswith("<"):
            return None
        return found[1], int(found[2]), int(found[3])


def _site(place: tuple[str, int, int], call: Call | None, op: OpRecord) -> Site:
    """The line, and the expression where only one on it can be meant."""
    file, line, column = place
    text = linecache.getline(file, line).rstrip("\n")
    site = Site(
        file=file, line=line, end_line=line, column=None, end_column=None,
        function=call.function.name if call is not None else "", source=text.strip(),
    )  # fmt: skip
    fitting = [
        node
        for node in ast.walk(tree_of(file))
        if isinstance(node, (ast.BinOp, ast.Call))
        and node.lineno == node.end_lineno == line
        and node.col_offset <= column < (node.end_col_offset or 0)
        and _is(node, op.name)
    ]
    if len(fitting) != 1 or not text.isascii():
        return site
    start, end = fitting[0].col_offset, fitting[0].end_col_offset
    return replace(site, column=start, end_column=end, expression=text[start:end])


def _is(node: ast.BinOp | ast.Call, name: str) -> bool:
    if isinstance(node, ast.BinOp):
        operator = OPERATORS.get(type(node.op).__name__)
        return operator is not None and operator.name == name
    func = node.func
    called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return called.rstrip("_") == name
